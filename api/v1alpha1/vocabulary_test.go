package v1alpha1

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
)

// The test repeats each string, because users, the cluster autoscaler and agents on nodes depend on the strings.
func TestAPIStringsDoNotChange(t *testing.T) {
	for want, got := range map[string]any{
		"machine.sapcloud.io/machine-controller-manager": FinalizerMachine,
		"machine.sapcloud.io/machine-controller":         FinalizerSecret,
		"node.machine.sapcloud.io/machine-controller":    FinalizerNode,
		"node":                                   LabelNode,
		"name":                                   LabelName,
		"machine-template-hash":                  LabelMachineTemplateHash,
		"freeze":                                 LabelFreeze,
		"force-deletion":                         LabelForceDeletion,
		"force-drain":                            LabelForceDrain,
		"node.machine.sapcloud.io/update-result": LabelUpdateResult,
		"node.machine.sapcloud.io/scale-up-disabled":                         LabelScaleUpDisabled,
		"node.gardener.cloud/machine-name":                                   LabelMachineName,
		"node.machine.sapcloud.io/candidate-for-update":                      LabelCandidateForUpdate,
		"node.machine.sapcloud.io/selected-for-update":                       LabelSelectedForUpdate,
		"deployment.kubernetes.io/revision":                                  AnnotationRevision,
		"deployment.kubernetes.io/revision-history":                          AnnotationRevisionHistory,
		"deployment.kubernetes.io/desired-replicas":                          AnnotationDesiredReplicas,
		"deployment.kubernetes.io/max-replicas":                              AnnotationMaxReplicas,
		"safety.machine.sapcloud.io/unfreeze":                                AnnotationUnfreeze,
		"machinepriority.machine.sapcloud.io":                                AnnotationMachinePriority,
		"node.machine.sapcloud.io/trigger-deletion-by-mcm":                   AnnotationTriggerDeletion,
		"machine.sapcloud.io/marked-for-deletion-time":                       AnnotationMarkedForDeletionTime,
		"machine.sapcloud.io/last-deployment-replica-change-by-scaler-time":  AnnotationLastScalerChange,
		"node.machine.sapcloud.io/preserve":                                  AnnotationPreserve,
		"node.machine.sapcloud.io/last-applied-node-preserve-value":          AnnotationLastAppliedPreserve,
		"node.machine.sapcloud.io/last-applied-anno-labels-taints":           AnnotationLastAppliedTemplate,
		"node.machine.sapcloud.io/last-applied-virtual-capacity":             AnnotationLastAppliedVirtualCapacity,
		"node.machine.sapcloud.io/not-managed-by-mcm":                        AnnotationNotManaged,
		"node.machine.sapcloud.io/update-failed-reason":                      AnnotationUpdateFailedReason,
		"node.machine.sapcloud.io/effective-creation-timeout":                AnnotationEffectiveCreationTimeout,
		"node.machine.sapcloud.io/machine-join-duration":                     AnnotationMachineJoinDuration,
		"cluster-autoscaler.kubernetes.io/scale-down-disabled":               AnnotationScaleDownDisabled,
		"cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm":        AnnotationScaleDownDisabledByMCM,
		"deployment.machine.sapcloud.io/prefer-no-schedule":                  AnnotationPreferNoSchedule,
		"deployment.machine.sapcloud.io/prefer-no-schedule:PreferNoSchedule": TaintPreferNoSchedule + ":" + string(TaintPreferNoScheduleEffect),
		"node.machine.sapcloud.io/preserved:NoSchedule":                      TaintPreserved + ":" + string(TaintPreservedEffect),
		"node.gardener.cloud/critical-components-not-ready:NoSchedule":       TaintCriticalComponentsNotReady + ":" + string(TaintCriticalComponentsNotReadyEffect),
		"drain.machine.sapcloud.io/cluster-api":                              AnnotationClusterAPIDrain,
		"drain.machine.sapcloud.io/status":                                   AnnotationDrainStatus,
		"machine.sapcloud.io/collect-orphans":                                AnnotationCollectOrphans,
		"now":                                                                ValuePreserveNow,
		"when-failed":                                                        ValuePreserveWhenFailed,
		"auto-preserved":                                                     ValuePreserveAuto,
		"false":                                                              ValuePreserveFalse,
		"True":                                                               ValueTrue,
		"required":                                                           ValueRequired,
		"true":                                                               ValueLowerTrue,
		"successful":                                                         ValueUpdateSuccessful,
		"failed":                                                             ValueUpdateFailed,
		"InPlaceUpdate":                                                      NodeInPlaceUpdate,
		"Preserved":                                                          NodePreserved,
		"Terminating":                                                        NodeTerminating,
		"Pending":                                                            MachinePending,
		"Running":                                                            MachineRunning,
		"Unknown":                                                            MachineUnknown,
		"Failed":                                                             MachineFailed,
		"CrashLoopBackOff":                                                   MachineCrashLoopBackOff,
		"InPlaceUpdating":                                                    MachineInPlaceUpdating,
		"InPlaceUpdateSuccessful":                                            MachineInPlaceUpdateSuccessful,
		"InPlaceUpdateFailed":                                                MachineInPlaceUpdateFailed,
		"Processing":                                                         MachineStateProcessing,
		"Successful":                                                         MachineStateSuccessful,
		"Create":                                                             MachineOperationCreate,
		"Update":                                                             MachineOperationUpdate,
		"DrainNode":                                                          MachineOperationDrainNode,
		"HealthCheck":                                                        MachineOperationHealthCheck,
		"Delete":                                                             MachineOperationDelete,
		"Available":                                                          MachineDeploymentAvailable,
		"Progressing":                                                        MachineDeploymentProgressing,
		"ReplicaFailure":                                                     MachineSetReplicaFailure,
		"Frozen":                                                             MachineSetFrozen,
		"Preserved by MCM.":                                                  ReasonPreservedByMCM,
		"Preserved by user.":                                                 ReasonPreservedByUser,
		"Preservation stopped.":                                              ReasonPreservationStopped,
	} {
		assert.Equal(t, want, fmt.Sprint(got))
	}
	// These constants must have the same values as constants of other types.
	assert.EqualValues(t, MachineSetReplicaFailure, MachineDeploymentReplicaFailure)
	assert.EqualValues(t, MachineSetFrozen, MachineDeploymentFrozen)
	assert.EqualValues(t, "Available", MachineAvailable)
	assert.EqualValues(t, "Terminating", MachineTerminating)
	assert.EqualValues(t, "InPlaceUpdate", MachineOperationInPlaceUpdate)
	assert.EqualValues(t, "Failed", MachineStateFailed)
}

func TestOwnMetadataKeys(t *testing.T) {
	for _, key := range OwnMetadataKeys() {
		assert.True(t, IsOwnMetadataKey(key), key)
	}
	for _, wish := range []string{
		"", "team", LabelName, LabelFreeze, LabelForceDeletion, LabelForceDrain, LabelScaleUpDisabled, LabelUpdateResult,
		LabelCandidateForUpdate, LabelSelectedForUpdate, AnnotationUnfreeze, AnnotationMachinePriority,
		AnnotationTriggerDeletion, AnnotationLastScalerChange, AnnotationPreserve, AnnotationEffectiveCreationTimeout,
		AnnotationScaleDownDisabled, AnnotationUpdateFailedReason,
	} {
		assert.False(t, IsOwnMetadataKey(wish), wish)
	}
	assert.IsIncreasing(t, OwnMetadataKeys())
}

func TestReservedConditionTypes(t *testing.T) {
	assert.True(t, IsReservedConditionType("ClassReady"))
	assert.True(t, IsReservedConditionType("InstanceReady"))
	for _, copied := range []corev1.NodeConditionType{corev1.NodeReady, NodeInPlaceUpdate, NodePreserved, NodeTerminating, ""} {
		assert.False(t, IsReservedConditionType(copied), copied)
	}
}
