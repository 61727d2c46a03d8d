"""Slurm in the booted machine, by the services of Debian's packages."""

from tests.booted.machine import Machine
from tests.lab import SCHEDULER

SLURM_CONF = """\
ClusterName=booted
SlurmctldHost={host}(127.0.0.1)
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
GresTypes=gpu
PriorityType=priority/multifactor
{weights}
SchedulerParameters={scheduler}
MinJobAge=300
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStorageTRES=gres/gpu
JobAcctGatherType=jobacct_gather/none
NodeName={host} NodeAddr=127.0.0.1 CPUs=160 RealMemory=8000 Gres=gpu:p100:{gpus}
PartitionName=gpu Nodes=ALL Default=YES MaxTime=UNLIMITED DefaultTime=60
PartitionName=sla Nodes=ALL MaxTime=1-0 PriorityTier=2
"""
DBD_CONF = """\
AuthType=auth/munge
DbdHost=localhost
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageUser=slurm
StorageLoc=slurm_acct_db
PidFile=/run/slurmdbd.pid
LogFile=/var/log/slurm/slurmdbd.log
"""
USERS = ("alice", "bob")
WEIGHTS = "PriorityWeightAge=1000\nPriorityWeightJobSize=1000"


def set_up(machine: Machine, gpus: int = 4, weights: str = WEIGHTS) -> None:
    """Accounting, controller, one node with fake GPUs, two users; all by systemd's units."""
    host, fake = machine.do("hostname").strip(), "/etc/slurm/fake-gpu"
    machine.do(f"seq -f '{fake}%.0f' 0 {gpus - 1} | xargs touch")
    conf = SLURM_CONF.format(host=host, gpus=gpus, weights=weights, scheduler=SCHEDULER)
    machine.write("/etc/slurm/slurm.conf", conf)
    machine.write("/etc/slurm/gres.conf", f"Name=gpu Type=p100 File={fake}[0-{gpus - 1}]\n")
    machine.write("/etc/slurm/slurmdbd.conf", DBD_CONF, mode=0o600)
    machine.do(
        "chown slurm: /etc/slurm/slurmdbd.conf;"
        "mkdir -p /var/lib/slurm/slurmctld /var/lib/slurm/slurmd /var/log/slurm;"
        "chown -R slurm: /var/lib/slurm /var/log/slurm"
    )
    for user in USERS:
        machine.do(f"useradd -m {user}")
    machine.do("systemctl restart munge mariadb", timeout_s=120)
    machine.do(
        "mariadb -e \"create user 'slurm'@'localhost' identified via unix_socket;"
        "grant all on slurm_acct_db.* to 'slurm'@'localhost'\""
    )
    machine.do("systemctl restart slurmdbd")
    machine.until(
        lambda: machine.run("sacctmgr -n list cluster").code == 0, 60, "slurmdbd does not answer"
    )
    machine.do("sacctmgr -i add cluster booted", timeout_s=60)
    machine.do("sacctmgr -i add account staff")
    machine.do(f"sacctmgr -i add user {','.join(USERS)} account=staff")
    machine.do("systemctl restart slurmctld slurmd")
    machine.until(
        lambda: "idle" in machine.run("sinfo -h -o %T").text, 60, "the node does not come up"
    )


def submit(machine: Machine, user: str, *options: str) -> int:
    """A job that sleeps for an hour; its id."""
    line = f"sbatch --parsable {' '.join(options)} --output=/dev/null --wrap 'sleep 3600'"
    return int(machine.do(f"cd /tmp && {line}", user=user))


def priorities(machine: Machine) -> dict[int, int]:
    """Pending job -> priority, as squeue shows it."""
    rows = machine.do("squeue -h -t PD -o '%i %Q'").split("\n")
    return {int(row.split()[0]): int(row.split()[1]) for row in rows if row}


def sprio(machine: Machine) -> str:
    """Every factor of every pending job, but age, which goes on."""
    return machine.do("sprio -h -o '%i %Y %F %J %P %Q %S %N'")


def written_to(machine: Machine) -> set[int]:
    """Pending jobs that bear a site factor, which rltuned alone gives here."""
    rows = machine.do("sprio -h -o '%i %S'").splitlines()
    return {int(job) for job, factor in map(str.split, rows) if int(float(factor))}
