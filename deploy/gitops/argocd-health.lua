-- Health of a MachineDeployment in Argo CD, for machine.sapcloud.io, and of a MachineDeployment or MachineSet of
-- cluster.x-k8s.io. docs/how-to/gitops.md says how Argo CD gets this script.
local generation = obj.metadata.generation
local status = obj.status or {}
if status.observedGeneration ~= generation then
  return {status = "Progressing", message = "generation " .. tostring(generation) .. " was not observed yet"}
end

-- If Git has an object of cluster.x-k8s.io/v1beta1, Argo CD reads the live object in this version. Its
-- status.v1beta2.conditions are the conditions of v1beta2.
local conditions = {}
for _, condition in ipairs((status.v1beta2 or status).conditions or {}) do
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
  local waits = {DeploymentPaused = true, RolloutHeld = true, RolloutWaiting = true, Paused = true}
  if waits[conditions.Reconciling.reason] then
    return {status = "Suspended", message = conditions.Reconciling.message}
  end
  return {status = "Progressing", message = conditions.Reconciling.message}
end
-- Millwright writes Progressing on each deployment and MachinesCreated on each set.
if conditions.Progressing or conditions.MachinesCreated then
  return {status = "Healthy", message = conditions.Progressing and conditions.Progressing.message or ""}
end

-- Cluster API's own controllers reconcile the object.
if is("Paused") or obj.spec.paused then
  return {status = "Suspended", message = is("Paused") and conditions.Paused.message or "spec.paused is true"}
end
for _, kind in ipairs({"RollingOut", "ScalingUp", "ScalingDown", "Remediating"}) do
  if is(kind) then
    return {status = "Progressing", message = conditions[kind].message}
  end
end
if not is("MachinesReady") then
  local ready = conditions.MachinesReady or {}
  return {status = "Progressing", message = ready.message or "no condition MachinesReady"}
end
return {status = "Healthy", message = ""}
