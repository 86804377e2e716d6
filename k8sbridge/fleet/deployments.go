package fleet

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
)

type deployment = *v1alpha1.MachineDeployment

func deploymentGauges() []gauge[deployment] {
	const prefix = "mcm_machine_deployment_"
	return append(
		deploymentSpecGauges(prefix+"info_spec_"),
		objectCountGauge[deployment](prefix+"items_total", "MachineDeployments."),
		multiSampleGauge(
			prefix+"info",
			"1 for each MachineDeployment, with its strategy.",
			[]string{"createdAt", "spec_strategy_type"},
			func(d deployment, send sendSampleFunc) {
				send(1, creationUnixSeconds(d), string(d.Spec.Strategy.EffectiveType()))
			},
		),
		perObjectGauge(
			prefix+"status_replicas",
			"Machines, including those that are being deleted.",
			func(d deployment) float64 { return float64(d.Status.Replicas) },
		),
		perObjectGauge(
			prefix+"status_updated_replicas",
			"Machines of the newest template.",
			func(d deployment) float64 { return float64(d.Status.UpdatedReplicas) },
		),
		perObjectGauge(
			prefix+"status_ready_replicas",
			"Machines whose node is ready.",
			func(d deployment) float64 { return float64(d.Status.ReadyReplicas) },
		),
		perObjectGauge(prefix+"status_available_replicas", "Machines that have been ready for minReadySeconds.",
			func(d deployment) float64 { return float64(d.Status.AvailableReplicas) }),
		perObjectGauge(prefix+"status_unavailable_replicas", "Machines that are wanted but not available.",
			func(d deployment) float64 { return float64(d.Status.UnavailableReplicas) }),
		multiSampleGauge(
			prefix+"status_collision_count",
			"How often the name of a new MachineSet was in use. Absent: never.",
			nil,
			func(d deployment, send sendSampleFunc) { sendOptionalValue(send, d.Status.CollisionCount) },
		),
		multiSampleGauge(
			prefix+"status_condition",
			"Conditions: 1 for True, 0 for False, 2 for Unknown.",
			[]string{"condition"},
			func(d deployment, send sendSampleFunc) {
				sendConditions(send, d.Status.Conditions, func(c v1alpha1.MachineDeploymentCondition) (kind, status string) {
					return string(c.Type), string(c.Status)
				})
			},
		),
		failedMachinesGauge(prefix+"failed_machines", "1 for each failed machine in the status of a deployment.",
			func(d deployment) []v1alpha1.MachineSummary { return d.Status.FailedMachines }),
	)
}

func deploymentSpecGauges(prefix string) []gauge[deployment] {
	return []gauge[deployment]{
		perObjectGauge(
			prefix+"replicas",
			"Machines that are wanted.",
			func(d deployment) float64 { return float64(d.Spec.Replicas) },
		),
		perObjectGauge(prefix+"paused", "1 while the deployment is paused, else 0.", func(d deployment) float64 {
			if d.Spec.Paused {
				return 1
			}
			return 0
		}),
		perObjectGauge(
			prefix+"min_ready_seconds",
			"Seconds for which a machine must have been ready before it counts as available.",
			func(d deployment) float64 { return float64(d.Spec.MinReadySeconds) },
		),
		multiSampleGauge(
			prefix+"rolling_update_max_surge",
			"Machines that a rolling update may add. Absent for other strategies.",
			nil,
			func(d deployment, send sendSampleFunc) { sendRollingUpdateLimit(d, send, true) },
		),
		multiSampleGauge(
			prefix+"rolling_update_max_unavailable",
			"Machines that may be missing during a rolling update. Absent for other strategies.",
			nil,
			func(d deployment, send sendSampleFunc) { sendRollingUpdateLimit(d, send, false) },
		),
		multiSampleGauge(prefix+"revision_history_limit", "Old MachineSets that are kept. Absent: all.", nil,
			func(d deployment, send sendSampleFunc) { sendOptionalValue(send, d.Spec.RevisionHistoryLimit) }),
		multiSampleGauge(
			prefix+"progress_deadline_seconds",
			"Seconds for which a rollout may make no progress. Absent: without limit.",
			nil,
			func(d deployment, send sendSampleFunc) { sendOptionalValue(send, d.Spec.ProgressDeadlineSeconds) },
		),
		multiSampleGauge(
			prefix+"rollback_to_revision",
			"Revision to which a rollback was requested; 0 means the one before the newest. Absent: none.",
			nil,
			func(d deployment, send sendSampleFunc) {
				if r := d.Spec.RollbackTo; r != nil {
					send(float64(r.Revision))
				}
			},
		),
	}
}

// sendRollingUpdateLimit sends maxSurge or maxUnavailable as a number of machines. A string without % also counts as a
// percentage.
func sendRollingUpdateLimit(d deployment, send sendSampleFunc, surge bool) {
	if d.Spec.Strategy.EffectiveType() != v1alpha1.RollingUpdateMachineDeploymentStrategyType {
		return
	}
	maxSurge, bound := d.Spec.Strategy.EffectiveRollingUpdate()
	if surge {
		bound = maxSurge
	}
	if bound.Type == intstr.String {
		bound.StrVal = strings.TrimSuffix(bound.StrVal, "%") + "%"
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(&bound, int(d.Spec.Replicas), surge)
	if err == nil { // admission rejects all other values of maxSurge and maxUnavailable
		send(float64(n))
	}
}
