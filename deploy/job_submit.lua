-- slurmctld itself refuses what rltuned never does to a job. Slurm's level Operator may change much more than priorities. With JobSubmitPlugins=lua in slurm.conf
-- and this file beside it, an update by rltuned's user passes only when it sets priority (not 0, which
-- would hold the job), site factor, nice or OverSubscribe. Where there is a
-- job_submit.lua already, call may_rltuned() first in its slurm_job_modify.
-- It does not see scancel, requeue, reservations or sacctmgr. Tried on Slurm 22.05.

local RLTUNED = 990 -- `id -u rltuned`

local WORDS = {
  "account", "admin_comment", "burst_buffer", "comment", "dependency", "features", "licenses",
  "name", "partition", "qos", "req_nodes", "reservation", "tres_per_job", "tres_per_node",
  "tres_per_socket", "tres_per_task", "wckey",
}
local NUMBERS = {
  "time_limit", "time_min", "min_nodes", "max_nodes", "min_cpus", "max_cpus", "num_tasks",
  "cpus_per_task", "min_mem_per_node", "min_mem_per_cpu", "begin_time", "requeue", "contiguous",
}
-- the value of a number that an update leaves alone; for the begin time it is 0
local UNSET = { [65534] = true, [4294967294] = true, [slurm.NO_VAL64] = true }

-- Why this update is not rltuned's; nil = it is, or another user's.
function may_rltuned(job_desc, uid)
  if uid ~= RLTUNED then return nil end
  if job_desc.priority == 0 then return "hold" end
  for _, field in ipairs(WORDS) do
    if job_desc[field] ~= nil then return field end
  end
  for _, field in ipairs(NUMBERS) do
    local value = job_desc[field]
    local unset = UNSET[value] or (field == "begin_time" and value == 0)
    if value ~= nil and not unset then return field end
  end
  return nil
end

function slurm_job_submit(job_desc, part_list, uid)
  return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, uid)
  local field = may_rltuned(job_desc, uid)
  if field then
    slurm.log_info("rltuned may not change %s of job %u", field, job_rec.job_id)
    return slurm.ESLURM_ACCESS_DENIED or slurm.ERROR
  end
  return slurm.SUCCESS
end
