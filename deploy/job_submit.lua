-- Three parts, each of use without the others: slurmctld itself refuses what rltuned never does to a
-- job, new jobs get their delay at submission (STAMP, below), and a job that says how fast it runs on
-- several nodes gets no more of them than it uses well (rltuned_knee; docs/job-sizes.md).
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

-- Delays from submission on. The daemon writes STAMP in every cycle ([order] newcomers); a few cycles
-- after its end the stamp is out of date and this does nothing. Only rltuned's user may be able to
-- write in its folder. Where there is a job_submit.lua already, call rltuned_delay() in its
-- slurm_job_submit. The rule is `delay`, of jobs with GPUs in one partition; the daemon does the rest.

local STAMP = "/run/rltuned/newcomers"
local NO_VAL, INFINITE = 4294967294, 4294967295

-- What the daemon has written; nil = nothing, or out of date.
local function rltuned_stamp()
  local file = io.open(STAMP, "r")
  if not file then return nil end
  local text = file:read(65536) or ""
  file:close()
  if text:sub(1, 10) ~= "rltuned 1\n" or text:sub(-5) ~= "\nend\n" then return nil end
  local stamp = { partition = {}, user = {}, account = {}, qos = {} }
  for word, value in text:gmatch("([a-z_]+) ([^\n]+)") do
    if type(stamp[word]) == "table" then stamp[word][value] = true
    else stamp[word] = tonumber(value) end
  end
  for _, name in ipairs({ "until", "no_limit_s", "slope", "zero", "stretch", "clip", "max_delay_s" }) do
    if not stamp[name] then return nil end
  end
  return os.time() <= stamp["until"] and stamp or nil
end

-- GPUs over all nodes; nil = not stated in a form that leaves no doubt.
local function gpus_of(job_desc)
  local found, count = nil, 0
  for _, field in ipairs({ "tres_per_job", "tres_per_node", "tres_per_task", "tres_per_socket" }) do
    if job_desc[field] and job_desc[field] ~= "" then found, count = field, count + 1 end
  end
  if count ~= 1 then return nil end
  local text = job_desc[found]
  local number = text:match("^gres[:/]gpu[:=](%d+)$") or text:match("^gres[:/]gpu:[%w_.-]+[:=](%d+)$")
  if not number and text:match("^gres[:/]gpu$") then number = 1 end
  number = tonumber(number)
  if not number or number < 1 then return nil end
  local tasks, least, most = job_desc.num_tasks, job_desc.min_nodes, job_desc.max_nodes
  if found == "tres_per_job" then return number end
  if found == "tres_per_task" then return tasks ~= NO_VAL and number * tasks or nil end
  if found == "tres_per_socket" then return nil end
  if least == NO_VAL then return (tasks == NO_VAL or tasks == 1) and number or nil end
  return (most == NO_VAL or most == least) and number * least or nil
end

-- Gives a new job its site factor, or leaves it alone.
function rltuned_delay(job_desc, part_list)
  local stamp = rltuned_stamp()
  if not stamp or job_desc.site_factor ~= NO_VAL or job_desc.priority ~= NO_VAL then return end
  if job_desc.reservation and job_desc.reservation ~= "" then return end
  -- sprio hides the factor of a job that may not start yet; by then its formula may be forgotten
  if (job_desc.dependency or "") ~= "" or (job_desc.begin_time or 0) > os.time() then return end
  local part = part_list[job_desc.partition or ""]
  if not job_desc.partition then
    for _, each in pairs(part_list) do if each.flag_default == 1 then part = each end end
  end
  if not part or not stamp.partition[part.name] then return end
  local who = {
    user = job_desc.user_name,
    account = job_desc.account or job_desc.default_account,
    qos = job_desc.qos or job_desc.default_qos,
  }
  for word, names in pairs({ user = stamp.user, account = stamp.account, qos = stamp.qos }) do
    if next(names) and (not who[word] or names[who[word]]) then return end
  end
  local gpus, minutes = gpus_of(job_desc), job_desc.time_limit
  if minutes == NO_VAL then minutes = part.default_time end
  if minutes == NO_VAL then minutes = part.max_time end
  if not gpus then return end
  local limit = minutes == INFINITE and stamp.no_limit_s or minutes * 60
  local area = limit * math.sqrt(gpus) -- as Stamp.factor in rltuned/daemon/newcomers.py
  local delay = math.min(stamp.stretch * area, stamp.clip * area, stamp.max_delay_s)
  job_desc.site_factor = stamp.zero - math.floor(stamp.slope * delay + 1e-6)
end

-- A job that accepts several node counts and names its speed on some of them, as
-- --comment "rltuned.speed=1:1,2:1.9,4:3.4": the range ends before the first count on which a node does
-- less than EFFICIENCY of what it does on the fewest named. Needs no daemon; works without a stamp.
local EFFICIENCY = 0.7

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
  rltuned_delay(job_desc, part_list)
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
