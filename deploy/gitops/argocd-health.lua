-- Health of a MachineDeployment in Argo CD, for machine.sapcloud.io and for cluster.x-k8s.io. docs/how-to/gitops.md says
-- how Argo CD gets this script.
local generation = obj.metadata.generation
if obj.status == nil or obj.status.observedGeneration ~= generation then
  return {status = "Progressing", message = "Millwright has not seen generation " .. tostring(generation)}
end

local conditions = {}
for _, condition in ipairs(obj.status.conditions or {}) do
  conditions[condition.type] = condition
end
local function is(kind)
  return conditions[kind] ~= nil and conditions[kind].status == "True"
end

if is("Degraded") then
  return {status = "Degraded", message = conditions.Degraded.message}
end
if is("Stalled") then
  return {status = "Degraded", message = conditions.Stalled.message}
end
if is("Reconciling") then
  local waits = {DeploymentPaused = true, RolloutHeld = true, RolloutWaiting = true}
  if waits[conditions.Reconciling.reason] then
    return {status = "Suspended", message = conditions.Reconciling.message}
  end
  return {status = "Progressing", message = conditions.Reconciling.message}
end
return {status = "Healthy", message = conditions.Progressing and conditions.Progressing.message or ""}
