"""python -m scripts.experiment_slurm"""

import sys

from scripts.experiment_slurm.main import main

sys.exit(main())
