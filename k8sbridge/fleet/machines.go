package fleet

import (
	corev1 "k8s.io/api/core/v1"

	"millwright/api/v1alpha1"
	"millwright/observe/cache"
)

type machine = *v1alpha1.Machine

func machineGauges() []gauge[machine] {
	const prefix = "mcm_machine_"
	return []gauge[machine]{
		objectCountGauge[machine](prefix+"items_total", "Machines."),
		{
			newDesc("millwright_machines", "Machines, by phase. Phase None: not processed yet.", "phase"),
			func(machines []machine, send sendSampleFunc) {
				phases := map[v1alpha1.MachinePhase]int{}
				for _, m := range machines {
					phases[m.Status.CurrentStatus.Phase]++
				}
				for phase, n := range phases {
					send(float64(n), labelValueOrNone(string(phase)))
				}
			},
		},
		multiSampleGauge(prefix+"info", "1 for each Machine, with its instance, class and node.",
			[]string{"createdAt", "spec_provider_id", "spec_class_api_group", "spec_class_kind", "spec_class_name", "node_name"},
			func(m machine, send sendSampleFunc) {
				class := m.Spec.Class
				send(
					1,
					creationUnixSeconds(m),
					m.Spec.ProviderID,
					class.APIGroup,
					class.Kind,
					class.Name,
					cache.NodeNameOfMachine(m),
				)
			}),
		perObjectGauge(
			prefix+"current_status_phase",
			"Phase: -4 Terminating, -3 Failed, -2 CrashLoopBackOff, -1 Unknown, 0 Pending, 1 Running; 0 for all others.",
			phaseNumber,
		),
		multiSampleGauge(
			prefix+"status_condition",
			"Conditions, those of the node included: 1 for True, 0 for False, 2 for Unknown.",
			[]string{"condition"},
			func(m machine, send sendSampleFunc) {
				sendConditions(
					send,
					m.Status.Conditions,
					func(c corev1.NodeCondition) (kind, status string) { return string(c.Type), string(c.Status) },
				)
			},
		),
	}
}

// Source: machine-controller-manager.
func phaseNumber(m machine) float64 {
	switch m.Status.CurrentStatus.Phase {
	case v1alpha1.MachineTerminating:
		return -4
	case v1alpha1.MachineFailed:
		return -3
	case v1alpha1.MachineCrashLoopBackOff:
		return -2
	case v1alpha1.MachineUnknown:
		return -1
	case v1alpha1.MachineRunning:
		return 1
	default:
		return 0
	}
}
