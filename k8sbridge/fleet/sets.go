package fleet

import "millwright/api/v1alpha1"

type set = *v1alpha1.MachineSet

func setGauges() []gauge[set] {
	const prefix = "mcm_machine_set_"
	return []gauge[set]{
		total[set](prefix+"items_total", "MachineSets."),
		several(prefix+"info", "1 for each MachineSet, with its class.",
			[]string{"createdAt", "spec_machine_class_api_group", "spec_machine_class_kind", "spec_machine_class_name"},
			func(s set, send emit) {
				class := s.Spec.Template.Spec.Class
				send(1, createdAt(s), class.APIGroup, class.Kind, class.Name)
			}),
		number(
			prefix+"info_spec_replicas",
			"Machines that are wanted.",
			func(s set) float64 { return float64(s.Spec.Replicas) },
		),
		number(
			prefix+"info_spec_min_ready_seconds",
			"Seconds for which a machine must have been ready before it counts as available.",
			func(s set) float64 { return float64(s.Spec.MinReadySeconds) },
		),
		number(
			prefix+"status_replicas",
			"Machines, including those that are being deleted.",
			func(s set) float64 { return float64(s.Status.Replicas) },
		),
		number(prefix+"status_fully_labelled_replicas", "Machines with all labels of the template.",
			func(s set) float64 { return float64(s.Status.FullyLabeledReplicas) }),
		number(
			prefix+"status_ready_replicas",
			"Machines whose node is ready.",
			func(s set) float64 { return float64(s.Status.ReadyReplicas) },
		),
		number(prefix+"status_available_replicas", "Machines that have been ready for minReadySeconds.",
			func(s set) float64 { return float64(s.Status.AvailableReplicas) }),
		several(
			prefix+"status_condition",
			"Conditions: 1 for True, 0 for False, 2 for Unknown.",
			[]string{"condition"},
			func(s set, send emit) {
				conditions(
					send,
					s.Status.Conditions,
					func(c v1alpha1.MachineSetCondition) (kind, status string) { return string(c.Type), string(c.Status) },
				)
			},
		),
		failedMachines(prefix+"failed_machines", "1 for each failed machine in the status of a set.",
			func(s set) []v1alpha1.MachineSummary { return s.Status.FailedMachines }),
	}
}
