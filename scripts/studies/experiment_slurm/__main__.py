"""python -m scripts.studies.experiment_slurm"""

import sys

from scripts.studies.experiment_slurm.main import main

sys.exit(main())
