package fleet

import "millwright/api/v1alpha1"

type machineSet = *v1alpha1.MachineSet

func machineSetGauges() []gauge[machineSet] {
	const prefix = "mcm_machine_set_"
	return []gauge[machineSet]{
		objectCountGauge[machineSet](prefix+"items_total", "MachineSets."),
		multiSampleGauge(prefix+"info", "1 for each MachineSet, with its class.",
			[]string{"createdAt", "spec_machine_class_api_group", "spec_machine_class_kind", "spec_machine_class_name"},
			func(s machineSet, send sendSampleFunc) {
				class := s.Spec.Template.Spec.Class
				send(1, creationUnixSeconds(s), class.APIGroup, class.Kind, class.Name)
			}),
		perObjectGauge(
			prefix+"info_spec_replicas",
			"Machines that are wanted.",
			func(s machineSet) float64 { return float64(s.Spec.Replicas) },
		),
		perObjectGauge(
			prefix+"info_spec_min_ready_seconds",
			"Seconds for which a machine must have been ready before it counts as available.",
			func(s machineSet) float64 { return float64(s.Spec.MinReadySeconds) },
		),
		perObjectGauge(
			prefix+"status_replicas",
			"Machines, including those that are being deleted.",
			func(s machineSet) float64 { return float64(s.Status.Replicas) },
		),
		perObjectGauge(prefix+"status_fully_labelled_replicas", "Machines with all labels of the template.",
			func(s machineSet) float64 { return float64(s.Status.FullyLabeledReplicas) }),
		perObjectGauge(
			prefix+"status_ready_replicas",
			"Machines whose node is ready.",
			func(s machineSet) float64 { return float64(s.Status.ReadyReplicas) },
		),
		perObjectGauge(prefix+"status_available_replicas", "Machines that have been ready for minReadySeconds.",
			func(s machineSet) float64 { return float64(s.Status.AvailableReplicas) }),
		multiSampleGauge(
			prefix+"status_condition",
			"Conditions: 1 for True, 0 for False, 2 for Unknown.",
			[]string{"condition"},
			func(s machineSet, send sendSampleFunc) {
				sendConditions(
					send,
					s.Status.Conditions,
					func(c v1alpha1.MachineSetCondition) (kind, status string) { return string(c.Type), string(c.Status) },
				)
			},
		),
		failedMachinesGauge(prefix+"failed_machines", "1 for each failed machine in the status of a set.",
			func(s machineSet) []v1alpha1.MachineSummary { return s.Status.FailedMachines }),
	}
}
