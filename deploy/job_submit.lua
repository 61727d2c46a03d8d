-- Two parts, each of use without the other: slurmctld itself refuses what rltuned never does to a
-- job, and a job that says how fast it runs on several nodes gets no more of them than it uses well
-- (rltuned_knee; docs/job-sizes.md).
--
-- Slurm's level Operator may change much more than priorities. With JobSubmitPlugins=lua in slurm.conf
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

-- A job that accepts several node counts and names its speed on some of them, as
-- --comment "rltuned.speed=1:1,2:1.9,4:3.4": the range ends before the first count on which a node does
-- less than EFFICIENCY of what it does on the fewest named. Needs no daemon.
local EFFICIENCY = 0.7
local NO_VAL = 4294967294

function rltuned_knee(job_desc)
  local least, most = job_desc.min_nodes, job_desc.max_nodes
  -- GPUs for the whole job may need all the nodes
  if not job_desc.comment or (job_desc.tres_per_job or "") ~= "" then return end
  if not least or not most or least == NO_VAL or most == NO_VAL or most <= least then return end
  local speeds = (" " .. job_desc.comment):match("%srltuned%.speed=(%S+)")
  local base, good, last = nil, least, 0
  for item in ((speeds or "") .. ","):gmatch("([^,]*),") do
    local nodes, speed = item:match("^(%d+):(%d+%.?%d*)$")
    nodes, speed = tonumber(nodes), tonumber(speed)
    if not nodes or nodes <= last or speed <= 0 or speed == math.huge then return end
    last, base = nodes, base or speed / nodes
    if nodes > most then return end
    if speed / nodes < EFFICIENCY * base then
      job_desc.max_nodes = good
      return
    end
    good = math.max(least, nodes)
  end
end

function slurm_job_submit(job_desc, part_list, uid)
  rltuned_knee(job_desc)
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
