package checker

import (
	"fmt"
	"slices"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"millwright/api/v1alpha1"
	"millwright/devstack/virtualcloud/admin"
	"millwright/workflows/run"
)

// WorkflowRun is a workflow run in Temporal's list.
type WorkflowRun struct {
	ID     string
	Type   string
	Status enumspb.WorkflowExecutionStatus
}

// WorkflowState has the runs and schedules in Temporal for one namespace of Machines.
type WorkflowState struct {
	Runs      []WorkflowRun
	Schedules []string // IDs of the schedules
}

// FindFailedRuns finds runs that failed, timed out or were terminated. FindFailedRuns leaves out sweeps for orphans: a
// sweep fails when the cloud or the API server does not answer.
func FindFailedRuns(d WorkflowState) (found []Finding) {
	bad := []enumspb.WorkflowExecutionStatus{
		enumspb.WORKFLOW_EXECUTION_STATUS_FAILED,
		enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT,
		enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED,
	}
	for _, r := range d.Runs {
		if slices.Contains(bad, r.Status) && r.Type != string(run.KindOrphanCollection) {
			found = append(found, Finding{CheckFailedRun, r.ID, r.Status.String()})
		}
	}
	return found
}

// FindUnsettledObjects finds all objects and runs that still change, wait or are incomplete. Some time after the last
// change and the last fault, FindUnsettledObjects must find nothing.
func FindUnsettledObjects(s Snapshot, d WorkflowState, excused map[string]bool) (found []Finding) {
	say := func(object, format string, values ...any) {
		found = append(found, Finding{CheckUnsettledObject, object, fmt.Sprintf(format, values...)})
	}
	of := s.InstancesByMachineUID()
	for _, m := range s.Machines {
		if why := unsettledReason(s, m, of[string(m.UID)]); why != "" {
			say("machine "+m.Name, "%s", why)
		}
	}
	for _, i := range s.Instances {
		if s.MachineByUID(i.Tags.MachineUID) == nil && !excused[i.Tags.MachineUID] {
			say("instance "+i.ID, "%s, of machine %s, which does not exist", i.State, i.Tags.MachineName)
		}
	}
	for _, md := range s.Deployments {
		findUnsettledDeployment(s, md, say)
	}
	for _, n := range s.Nodes {
		if n.DeletionTimestamp != nil {
			say("node "+n.Name, "is being deleted, finalizers %v", n.Finalizers)
		}
	}
	for _, set := range s.Sets {
		if set.DeletionTimestamp != nil {
			say("set "+set.Name, "is being deleted, finalizers %v", set.Finalizers)
		}
	}
	findUnsettledRuns(s, d, say)
	return found
}

// findUnsettledRuns adds a finding for each open run, and for each class without a schedule.
func findUnsettledRuns(s Snapshot, d WorkflowState, say func(object, format string, values ...any)) {
	for _, r := range d.Runs {
		if isOpenRun(r) &&
			!slices.Contains(
				[]run.Kind{run.KindMachineDeployment, run.KindClusterAPIDeployment, run.KindInstallation},
				run.Kind(r.Type),
			) {
			say("run "+r.ID, "is open")
		}
	}
	for _, c := range s.Classes {
		if !slices.ContainsFunc(d.Schedules, func(id string) bool { return strings.HasSuffix(id, "/"+string(c.UID)) }) {
			say("class "+c.Name, "has no schedule of sweeps")
		}
	}
}

// unsettledReason returns why a machine is still changing, waiting or incomplete; empty if the machine is settled.
func unsettledReason(s Snapshot, m v1alpha1.Machine, instances []admin.Instance) string {
	phase := m.Status.CurrentStatus.Phase
	switch {
	case m.DeletionTimestamp != nil:
		return fmt.Sprintf(
			"is being deleted since %s, finalizers %v, phase %q",
			m.DeletionTimestamp.Format("15:04:05"),
			m.Finalizers,
			phase,
		)
	case len(instances) != 1:
		return fmt.Sprintf(
			"%d instances, phase %q, %s: %s",
			len(instances),
			phase,
			m.Status.LastOperation.Type,
			m.Status.LastOperation.Description,
		)
	case !IsNodeReady(s.NodeOfInstance(instances[0])):
		return fmt.Sprintf("its node is not ready, phase %q", phase)
	case m.Spec.ProviderID != instances[0].ProviderID:
		return fmt.Sprintf("names instance %q; the cloud has %q for it", m.Spec.ProviderID, instances[0].ProviderID)
	case phase != v1alpha1.MachineRunning:
		return fmt.Sprintf("phase %q", phase)
	default:
		return ""
	}
}

// findUnsettledDeployment adds a finding if a deployment has too few or too many machines, if a machine lacks a label
// of the template, or if the deployment has not adopted a set.
func findUnsettledDeployment(
	s Snapshot,
	md v1alpha1.MachineDeployment,
	say func(object, format string, values ...any),
) {
	machines := s.MachinesOfDeployment(&md)
	if len(machines) != int(md.Spec.Replicas) {
		say("deployment "+md.Name, "%d machines, wanted are %d", len(machines), md.Spec.Replicas)
	}
	selector, err := metav1.LabelSelectorAsSelector(md.Spec.Selector)
	for _, set := range s.Sets {
		if err == nil && selector.Matches(labels.Set(set.Labels)) && metav1.GetControllerOf(&set) == nil {
			say("deployment "+md.Name, "set %s has no controller", set.Name)
		}
	}
	for _, m := range machines {
		for name, value := range md.Spec.Template.Labels {
			if m.Labels[name] != value {
				say("deployment "+md.Name, "machine %s has label %s=%q, the template has %q", m.Name, name, m.Labels[name], value)
			}
		}
	}
}

// FindLeftovers finds all objects, instances, runs and schedules that still exist after the objects of a namespace were
// deleted.
func FindLeftovers(s Snapshot, d WorkflowState, excused map[string]bool) (found []Finding) {
	say := func(object, format string, values ...any) {
		found = append(found, Finding{CheckLeftover, object, fmt.Sprintf(format, values...)})
	}
	for _, m := range s.Machines {
		say(
			"machine "+m.Name,
			"finalizers %v, phase %q, %s",
			m.Finalizers,
			m.Status.CurrentStatus.Phase,
			m.Status.LastOperation.Description,
		)
	}
	for _, o := range s.Sets {
		say("set "+o.Name, "finalizers %v", o.Finalizers)
	}
	for _, o := range s.Deployments {
		say("deployment "+o.Name, "finalizers %v", o.Finalizers)
	}
	for _, o := range s.Classes {
		say("class "+o.Name, "finalizers %v", o.Finalizers)
	}
	for _, i := range s.Instances {
		if !excused[i.Tags.MachineUID] {
			say("instance "+i.ID, "%s, of machine %s", i.State, i.Tags.MachineName)
		}
	}
	for _, n := range s.Nodes {
		say("node "+n.Name, "finalizers %v", n.Finalizers)
	}
	for _, r := range d.Runs {
		if isOpenRun(r) && r.Type != string(run.KindInstallation) {
			say("run "+r.ID, "is open")
		}
	}
	for _, id := range d.Schedules {
		say("schedule "+id, "is there")
	}
	return found
}

func isOpenRun(r WorkflowRun) bool { return r.Status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING }
