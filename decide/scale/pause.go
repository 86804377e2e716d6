package scale

// pauses returns why the set is paused, each as Cluster API words it; empty when it is not.
func (o Observed) pauses() []string {
	var why []string
	if o.OwnerPaused != "" {
		why = append(why, o.OwnerPaused+" has the cluster.x-k8s.io/paused annotation")
	}
	if o.Paused {
		why = append(why, "MachineSet has the cluster.x-k8s.io/paused annotation")
	}
	return why
}
