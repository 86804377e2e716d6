package main

// mutations returns the known ways to break the product, by room. Add one for each defect that a review found and no test had
// shown; remove one only with the code that it breaks.
func mutations() []mutation {
	const (
		set      = "./activities/set"
		cloud    = "./activities/cloud"
		drain    = "./activities/drain"
		machine  = "./activities/machine"
		node     = "./activities/deployment"
		bridge   = "./k8sbridge/watch"
		scaling  = "./decide/scale"
		draining = "./decide/drain"
		rolling  = "-skip=^Test(ThePromises|Promises|Decisions|Nothing|NoOld|Nobody|TheDecisions) ./decide/rollout" // without the simulations, which take a minute
	)
	return []mutation{
		{"S1", "decide/scale/remove.go", ` && !m.Chosen.After(o.Scaled)`, ``, scaling, "a mark of the autoscaler that is later than the last change of the size counts at once"},
		{"S2", "decide/scale/remove.go", `return m.Replace && !m.protected()`, `return m.Replace`, scaling, "preserved machines are replaced"},
		{"S3", "decide/scale/create.go", `missing := o.Replicas - len(active)`, `missing := o.Replicas - len(o.Members)`, scaling, "machines that are being deleted count as existing"},
		{"S4", "decide/scale/create.go", `>= 2*o.Replicas+2`, `>= 2*o.Replicas+3`, scaling, "one machine more is created and released without end"},
		{"S5", "decide/scale/conditions.go", `len(o.Members) > o.wanted() && len(o.live) >= o.wanted()`, `len(o.Members) > o.wanted()`, scaling, "ScalingDown is True while machines are missing"},

		{"D1", "decide/drain/plan.go", `if protected, until := Protected(v.pod, p.Now); protected {`, `if protected, until := Protected(v.pod, p.Now); protected && until.IsZero() && false {`, draining, "do-not-disrupt is ignored"},
		{"D2", "decide/drain/pods.go", ` || p.Tries.Result == Gone`, ``, draining, "a pod that the API server reported as gone is evicted again"},
		{"D3", "decide/drain/pods.go", `b.allows() > l.taken[b.Key]`, `b.allows() > 0`, draining, "evictions of the same decision do not use up the budget"},
		{"D4", "decide/drain/lanes.go", `own := l.lane(d.Pod)
		own.busy = true`, `own := l.lane(d.Pod)`, draining, "a lane does not wait for the volumes of a pod that left"},
		{"D5", "decide/drain/turn.go", `if i < most {`, `if i <= most {`, draining, "one drain more than allowed"},
		{"D6", "decide/drain/ladder.go", `grace := min(l.Grace, l.Timeout)`, `grace := l.Grace`, draining, "pods are deleted for longer than drainTimeout"},
		{"D7", "decide/drain/plan.go", `case lane.busy, !permit.given && len(permit.probe) == 0 && permit.next.IsZero():`, `case lane.busy:`, draining, "a pod whose budget is used up is evicted"},
		{"D8", "decide/drain/pods.go", `case p.Mirror, p.DaemonSet, p.Returned:`, `case p.Mirror, p.DaemonSet:`, draining, "pods that come back to a cordoned node are evicted for ever"},
		{"D9", "decide/drain/pods.go", `if p.Pending || p.Finished || len(p.Budgets) == 0 {`, `if p.Finished || len(p.Budgets) == 0 {`, draining, "a pending pod waits for its budget"},
		{"D10", "workflows/drain/drain.go", `d.seen.Outcome, d.seen.Blockers = "", nil`, `d.seen.Outcome = ""`, "./workflows/drain", "a resumed drain does not say what blocks it"},

		{"R1", "decide/rollout/planner.go", `max(o.Replicas-unavailable-preserved, 0)`, `max(o.Replicas-unavailable, 0)`, rolling, "preserved Failed machines block a rollout"},
		{"R2", "decide/rollout/strategies.go", `- p.needed - waiting - sum(old,`, `- p.needed - 0*waiting - sum(old,`, rolling, "old machines go before new ones are available"},
		{"R3", "decide/rollout/planner.go", `return max(here+set.terminating, set.Counted)`, `return here + set.terminating`, rolling, "the machines that a set counts itself take no places"},
		{"R4", "decide/rollout/machines.go", `case !guard && m.Guarded && !m.Preserved:`, `case !guard && m.Guarded:`, rolling, "the autoscaler's annotation of a preserved machine is removed"},
		{"R5", "decide/rollout/revisions.go", `if step.Approve || p.o.Now.Before(at.Until) {`, `if p.o.Now.Before(at.Until) {`, rolling, "a rollout step passes without approval"},
		{"R6", "decide/rollout/report.go", ` && p.current.Seen == p.o.Replicas &&`, ` &&`, rolling, "a rollout is complete before the set has seen its size"},
		{"R7", "decide/rollout/report.go", `c.Available+c.PreservedFailed >= p.o.Replicas`, `c.Ready+c.PreservedFailed >= p.o.Replicas`, rolling, "a rollout is complete with machines that are ready and not available"},
		{"R8", "decide/rollout/machines.go", ` || m.Failed || m.Node == "":
		case m.Available:`, ` || m.Node == "":
		case m.Available:`, rolling, "a Failed machine is selected for an in-place update"},
		{"R9", "decide/rollout/machines.go", `min(p.budget(), free-len(pick))`, `min(p.budget(), free)`, rolling, "unhealthy machines that are updated in place take no places"},
		{"R10", "decide/rollout/machines.go", `serving[m.Name] || !m.Deleting && !m.Failed`, `serving[m.Name] || !m.Deleting`, rolling, "a Failed machine stays on the autoscaler's list"},
		{"R11", "activities/kube/write.go", `		after.SetManagedFields(nil) // a cache has not all of them, and the API server would take those in a request for all
`, ``, "./activities/capi/deployment", "a status takes the fields of all others from them"},
		{"R12", "observe/capi/deployment/observed.go", `former < 0 || set`, `former < 0 || true || set`, "./observe/capi/deployment", "a set of Cluster API counts as having acted on a size that it has not seen"},
		{"R13", "observe/capi/deployment/observed.go", ` && set.Annotations[v1alpha1.AnnotationCreatedFor] != after.UTC().Format(time.RFC3339)`, ``, "./observe/capi/deployment", "a late clock of the API server makes sets without end"},
		{"R14", "decide/rollout/rollout.go", `case p.o.Suspended != "":`, `case p.o.Suspended != "" && !p.o.Deleting:`, rolling, "the sets of a paused deployment are deleted"},
		{"R15", "observe/capi/deployment/template.go", ` && (current || key != v1alpha1.AnnotationChangeCause)`, ` && (current || true)`, "./observe/capi/deployment", "a former set tells why the present revision was made"},
		{"R16", "decide/rollout/planner.go", `here := min(taken, p.here())`, `here := taken`, rolling, "machines that a set may still create are said to exist"},

		{"H1", "decide/health/health.go", `case f.Alone && f.Breaker == "":`, `case f.Alone:`, "./decide/health", "a machine without a deployment is replaced while the breaker is open"},
		{"H2", "decide/replace/budget.go", `2*dead >= joined }`, `2*dead > joined }`, "./decide/replace", "half of the nodes do not open the breaker"},
		{"O1", "decide/orphan/decide.go", `case d.Machines == 0:`, `case d.Machines < 0:`, "./decide/orphan", "a cluster without machines does not hold the sweep"},
		{"L1", "decide/deletion/deletion.go", `PreDrainHooks, Drain, Detach, PreTerminateHooks, Instance`, `PreDrainHooks, Drain, PreTerminateHooks, Detach, Instance`, "./decide/deletion", "pre-terminate hooks run before the volumes are detached"},

		{"B1", "observe/set/template.go", `if m.DeletionTimestamp != nil {
		return parts
	}`, ``, "./observe/set", "a machine that is being deleted takes labels and node template"},
		{"B2", "observe/machine/nodes.go", `return node != nil && phase != v1alpha1.MachineFailed`, `return false && phase != v1alpha1.MachineFailed`, "./observe/machine", "nodes of machines that are being deleted do not count for the breaker"},
		{"B3", "observe/drain/pods.go", `observecache.Rules:    func(any) bool { return true },`, `observecache.Rules:    func(any) bool { return false },`, "./observe/drain", "a changed drain rule wakes no drain"},
		{"B4", "observe/drain/pods.go", `attachment.Status.Attached && attachment.DeletionTimestamp == nil`, `attachment.DeletionTimestamp == nil`, "./observe/drain", "a volume that is only being attached elsewhere counts as attached"},
		{"B5", "observe/cache/objects.go", `== v1alpha1.ValueTrue && !ended`, `== v1alpha1.ValueTrue && (ended || !ended)`, "./observe/cache ./observe/set ./observe/deployment", "the annotation unfreeze is ignored"},
		{"B6", "observe/machine/nodes.go", `health != nil && health.InstanceGoneAt != nil`, `health != nil && health.InstanceGoneAt != nil && false`, "./observe/machine", "vanished instances count for the breaker"},

		{"W1", "k8sbridge/watch/fingerprint.go", `n.Finalizers, n.Spec.Taints, `, `n.Finalizers, `, bridge, "taints of a node wake nobody"},
		{"W2", "k8sbridge/watch/fingerprint.go", `standsStill(m), machine.IsPreserved(m), `, `standsStill(m), `, bridge, "preservation wakes no set"},
		{"W3", "k8sbridge/watch/events.go", `b.seen[id] = now`, `_ = now`, bridge, "what was told is not remembered"},
		{"W4", "k8sbridge/watch/send.go", `clear(b.notBefore) // Temporal answers: end all back-offs`, ``, bridge, "a back-off outlasts Temporal's absence"},
		{"X1", "decide/explain/explain.go", `list.FalseFirst(!a.ends().IsZero(), !b.ends().IsZero()), `, ``, "./decide/explain", "a cause that ends by itself comes before one that only a person ends"},
		{"X2", "decide/explain/machine.go", `if m.Unserved != "" && m.calls() {`, `if m.Unserved != "" {`, "./decide/explain", "a machine that waits for its node is said to wait for a worker of its provider"},
		{"X3", "observe/drain/ladder.go", `if why, _ := unusable(node); why == "" || m.Status.Health`, `if m.Status.Health`, drain, "pods are killed on a ready node whose instance the provider once reported as gone"},
		{"X4", "k8sbridge/watch/fingerprint.go", `standsStill(m), machine`, `machine`, bridge, "a machine that stands still wakes no set"},
		{"X5", "k8sbridge/watch/subject.go", `if pending.Calm() && !said {`, `if pending.Calm() && !said && false {`, bridge, "a calm set does not say what blocks its machine"},
		{"X6", "k8sbridge/watch/events.go", `} else if c.children {`, `} else if c.children && false {`, bridge, "a provider that has lost its workers wakes no machine"},
		{"X7", "k8sbridge/watch/bridge.go", `group.Go(func() { b.watchCalls(ctx) })`, ``, bridge, "a call without an answer is named up to a minute too late"},
		{"X8", "decide/explain/explain.go", `if w.Again {`, `if w.Again && false {`, "./decide/explain", "another try counts as the end of a wait for a person"},
		{"W5", "k8sbridge/watch/fingerprint.go", `n.Spec.Unschedulable, n.Spec.ProviderID,`, `n.Spec.Unschedulable,`, bridge, "a late providerID of a node wakes nobody"},
		{"W6", "k8sbridge/watch/events.go", `if c.added || e.deleted || c.spec && !c.parentDebounced {`, `if c.added || e.deleted {`, bridge, "a rotated Secret wakes no machine"},
		{"W7", "k8sbridge/watch/events.go", `if c.drained {`, `if c.drained && false {`, bridge, "a free place in the queue of drains wakes nobody"},
		{"W8", "k8sbridge/watch/send.go", `late || empty || errors.Is`, `late || empty && false || errors.Is`, bridge, "a Temporal that lost its data counts as one that answered"},

		{"P1", "provider/redact.go", `return len(b) - len(a)`, `return len(a) - len(b)`, "./provider", "the rest of a longer secret is not redacted"},
		{"P2", "provider/redact.go", `[]string{string(value), strings.TrimSpace(string(value))}`, `[]string{string(value), strings.Clone(string(value))}`, "./provider", "a secret that was pasted with a line break is not redacted"},

		{"A1", "activities/set/set.go", `&metav1.Preconditions{UID: new(types.UID(target.UID)), ResourceVersion: new(guarded)}`, `&metav1.Preconditions{UID: new(types.UID(target.UID))}`, set, "a machine that changed since the decision is deleted"},
		{"A2", "activities/drain/send.go", `metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}`, `metav1.DeleteOptions{}`, drain, "another pod of the same name is evicted"},
		{"A3", "activities/set/create.go", `"Error creating: "+refused)
		break`, `"Error creating: "+refused)
		continue`, set, "creation goes on after a rejected batch"},
		{"A4", "activities/cloud/provider.go", ` && info.StartedTime.Sub(info.ScheduledTime) < kube.FirstCallWithin`, ``, cloud, "the attempt of a reset activity looks for no instance before it creates one"},
		{"A4b", "activities/cloud/provider.go", ` && in.IntentRun == info.WorkflowExecution.RunID`, ``, cloud, "a reset run believes that no create call was begun"},
		{"A4c", "activities/cloud/provider.go", `info.Attempt == 1 && !hasDetails`, `info.Attempt == 1 && (hasDetails || !hasDetails)`, cloud, "an attempt that has details of another one looks for no instance"},
		{"A5", "activities/cloud/provider.go", `provider.Secret{"whole": []byte(token), "half": []byte(half)}`, `provider.Secret{"whole": []byte(token + half)}`, cloud, "half of a bootstrap token is not redacted"},
		{"A6", "activities/machine/node.go", `metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &node.UID, ResourceVersion: &node.ResourceVersion}}`, `metav1.DeleteOptions{}`, machine, "a node that was replaced since is deleted"},
		{"A7", "activities/machine/token.go", `found.Labels[v1alpha1.LabelMachineUID] != wanted.Labels[v1alpha1.LabelMachineUID],`, `false,`, machine, "the token of another machine is taken"},
		{"A8", "activities/drain/detach.go", `if known && len(left) == 0 ||`, `if len(left) == 0 ||`, drain, "attachments that are not known count as none"},
		{"A9", "activities/drain/loop.go", `known && before != now {`, `known && before != now && false {`, drain, "a changed budget does not wake its pods"},
		{"A10", "activities/kube/write.go", `case has && deleting && empty:`, `case has && deleting && (empty || !empty):`, set, "a set with machines loses its finalizer"},
		{"A11", "activities/set/create.go", ` || (err == nil && !metav1.IsControlledBy(made, set))`, ``, set, "a machine of somebody else counts as created"},
		{"A12", "activities/deployment/nodes.go", `{in.Settle, finishInPlace, true},`, `{in.Settle, finishInPlace, false},`, node, "an uncordon is decided by a machine from an old cache"},
		{"A13", "activities/machine/token.go", `fields.OneTermEqualSelector("type", string(corev1.SecretTypeBootstrapToken)).String()`, `fields.Everything().String()`, machine, "another Secret with the label of the machine is deleted"},
		{"A14", "activities/cloud/provider.go", `case ctx.Err() != nil:
		return InstanceAnswer{}, ctx.Err() // the provider's error for a cancelled call may be anything`, ``, cloud, "the provider's words of a cancelled call are returned"},
		{"A15", "activities/kube/errors.go", `apierrors.IsNotFound(err), apierrors.IsTooManyRequests(err),`, `apierrors.IsNotFound(err),`, set, "a throttled write counts as rejected"},
		{"A16", "activities/machine/node.go", `case kube.Unanswered(err), apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err):`, `case kube.Unanswered(err):`, machine, "an attachment stays when the API server was too busy to delete it"},
		{"A17", "activities/cloud/orphans.go", `func(m *v1alpha1.Machine) {
`, `func(m *v1alpha1.Machine) {
		if m.DeletionTimestamp != nil {
			return
		}
`, "-run=^TestTheLastLook ./activities/cloud", "the last look lets the instance go of a machine that is being deleted"},
		{"A18", "activities/cloud/provider.go", `case provider.OK, provider.NotInitialized, provider.OutOfRange: // one`, `case provider.OK, provider.NotInitialized: // one`, cloud, "several instances that are left fail the deletion"},
		{"A19", "activities/drain/loop.go", ` && observedrain.ToleratesCordon(pods[i])`, ``, drain, "every pod that came after the drain began is left behind"},
		{"A20", "activities/machine/preserve.go", `{p.writeCondition, p.markNode, p.annotate, p.writeExpiry}`, `{p.writeExpiry, p.writeCondition, p.markNode, p.annotate}`, machine, "the record of a preservation is removed before its traces"},
		{"A21", "activities/deployment/nodes.go", ` || machine.IsPreserved(m) {`, ` || machine.IsPreserved(m) && false {`, node, "a preserved machine loses its autoscaler annotation"},
		{"A22", "activities/kube/clock.go", `return r.At`, `return time.Now()`, machine, "a timer that fired meets a clock that is behind"},
		{"A23", "activities/set/set.go", `if set.DeletionTimestamp != nil {
		return nil, kube.Conflict(in.Set)
	}`, ``, set, "a set that is being deleted adopts machines"},
		{"A24", "activities/drain/loop.go", `			e.leave(pod)
			continue`, `			continue`, drain, "a pod that the API server does not know stays on the node"},
		{"A25", "activities/drain/send.go", `if ctx.Err() != nil || !locked && !e.over() {`, `if ctx.Err() != nil || !locked && !e.over() && false {`, drain, "an eviction whose turn did not come is sent"},
		{"A26", "activities/drain/loop.go", `spent = spending{version: b.ResourceVersion, next: spent.next}`, `spent = spending{version: b.ResourceVersion, next: spent.next, used: spent.used}`, drain, "what was used of a budget is never reset"},

		{"F1", "observe/deployment/rollout.go", `Orphaning:  cache.IsOrphaning(d),`, ``, "./observe/deployment ./activities/deployment", "--cascade=orphan of a deployment deletes its sets"},
		{"F2", "decide/rollout/rollout.go", `if p.o.Orphaning {`, `if p.o.Orphaning && false {`, rolling, "--cascade=orphan of a deployment deletes its sets, by the decision"},
		{"F3", "observe/set/observed.go", `, Orphaning: cache.IsOrphaning(set),`, `,`, "./observe/set ./activities/set", "--cascade=orphan of a set deletes its machines"},
		{"F4", "decide/scale/scale.go", `case o.Orphaning:`, `case o.Orphaning && false:`, scaling, "--cascade=orphan of a set deletes its machines, by the decision"},
		{"F5", "activities/cloud/provider.go", `m.ProviderID == instance.ProviderID && m.UID != in.Machine.UID`, `m.ProviderID == instance.ProviderID && m.UID != in.Machine.UID && false`, cloud, "an instance is adopted by its name although another machine names it"},
		{"F6", "activities/cloud/orphans.go", `cache.EachMachine(ctx, p.Classes, metav1.NamespaceAll`, `cache.EachMachine(ctx, p.Classes, namespace+metav1.NamespaceAll`, cloud, "a machine of another namespace claims no instance"},
		{"F7", "decide/drain/ladder.go", `l.Breaker != "" && !l.Now.Before(at)`, `l.Breaker != "" && !l.Now.Before(at) && false`, draining, "an unreachable node is emptied by force while the breaker is open"},
		{"F8", "workflows/machine/deletion.go", `d.Problem != nil && d.NeverTried`, `d.Problem != nil && d.NeverTried && false`, "./workflows/machine", "a machine without a class that was never tried waits for one to be deleted"},
		{"F9", "activities/kube/status.go", `phrase.Cut(summary.LastOperation.Description, longestSummary)`, `phrase.Cut(summary.LastOperation.Description, 100*longestSummary)`, "./activities/kube ./activities/set ./activities/deployment", "the descriptions in a status are not bounded"},
		{"F10", "decide/scale/report.go", `all[:min(len(all), mostNames)]`, `all`, "./activities/set ./activities/deployment", "the names in a status are not bounded"},
		{"F11", "decide/rollout/rollout.go", `return s.Matches && !s.Deleting`, `return s.Matches && !s.Deleting && false`, rolling, "no set is adopted"},
		{"F12", "decide/rollout/rollout.go", `return set.Foreign })`, `return set.Foreign && false })`, rolling, "no set is released"},
		{"F13", "activities/deployment/sets.go", `range in.Adopt {`, `range in.Adopt[:0] {`, node, "a set that is to be adopted is not"},
		{"F14", "activities/deployment/sets.go", `range in.Release {`, `range in.Release[:0] {`, node, "a set that is to be released is not"},
		{"F15", "observe/deployment/rollout.go", `o.Steps = Steps(kept)`, `_ = kept`, "./observe/deployment", "the steps of a rollout follow the policy while it is under way"},
		{"F16", "observe/deployment/rollout.go", `steps := RecordedSteps(was, p.Revision)`, `var steps []v1alpha1.RolloutStep`, node, "a report replaces the steps with which a rollout began"},
		{"F17", "observe/machine/facts.go", `return end.Add(absences.Between(m.CreationTimestamp.Time, now))`, `return end`, "./observe/machine", "the creation clock goes on while no worker is at work"},
		{"F18", "observe/machine/facts.go", ` + absences.Between(m.CreationTimestamp.Time, s.Since.Time)`, ``, "./observe/machine", "absences before a stop of the creation clock count"},
		{"F19", "activities/set/set.go", `m.ResourceVersion == target.Version && cache.HasFinalizer(m.Finalizers)`, `m.ResourceVersion == target.Version`, set, "a machine without our finalizer is deleted, and its instance stays"},
		{"F20", "observe/cache/versions.go", `if Newer(versions[resource], newest.GetResourceVersion()) {`, `if Newer(newest.GetResourceVersion(), versions[resource]) && false {`, "./observe/cache", "a restored API server is not noticed"},
		{"F21", "k8sbridge/watch/orphans.go", `for _, ref := range missing {`, `for _, ref := range map[string]cache.Ref{} {`, bridge, "schedules that Temporal lost come back late"},
		{"F22", "k8sbridge/watch/fingerprint.go", `paused, d.Labels, unfrozen)`, `paused, d.Labels[v1alpha1.LabelFreeze], unfrozen)`, bridge, "a label by which a policy selects a deployment wakes no set"},
		{"F23", "decide/replace/budget.go", ` || len(d.Grants) >= MaxGrants {`, ` {`, "./decide/replace", "the replacements in a status are not bounded"},
		{"F24", "workflows/machine/inquiry.go", `		q.known = answer.Problem
`, `		q.settled = true
`, "-run=^Test(VanishedInstance|SignalsDoNotEnd|TheProviderIsAsked|AQuestionThatWaits|TheNextCall) ./workflows/machine", "a provider that does not answer once is never asked again whether an instance is gone"},
		{"F25", "decide/scale/report.go", ` && slices.Equal(s.Failed, want.Failed)`, ``, "./observe/set", "a further failed machine is not in the set's status"},
		{"G1", "provider/driver/search.go", `	until := begun.Add(p.life(seen) + traits.Window)
`, `	until := begun
`, "./provider/driver", "a creation does not wait for an earlier one that shows late"},
		{"G2", "provider/driver/search.go", `i.MachineUID == "" && i.MachineName`, `i.MachineName`, "./provider/driver", "the instance of another machine with the same name is adopted"},
		{"G3", "provider/driver/provider.go", `		case provider.CodeOf(err) == provider.AlreadyExists:
			return p.holder(ctx, class, machine, err)
`, ``, "./provider/driver", "in a cloud of unique names, an instance that no read shows is not found"},
		{"G4", "provider/driver/errors.go", `class.Secret.Redact(said.Message)`, `said.Message`, "./provider/driver", "a cloud's words come out with the credentials"},
		{"G5", "decide/attention/machine.go", `	if found := m.found(); !found.Calm() {
		return found
	}
`, ``, "./decide/attention", "a node that is found by its provider ID is not recorded"},
		{"G6", "k8sbridge/watch/events.go", `	machines = append(machines, b.cluster.MachinesAwaiting(node.Spec.ProviderID)...)
`, ``, bridge, "a node that gets its provider ID wakes no machine"},
		{"G7", "observe/machine/facts.go", `	case cache.HasTaint(node, v1alpha1.TaintUninitialized):
		return "its cloud controller manager has not initialised it"
`, ``, "./observe/machine", "a node is taken for joined before its cloud has initialised it"},
		{"G8", "decide/orphan/claims.go", `_, here := c.here[i.Machine]`, `here := false`, "./decide/orphan", "a sweep deletes the instance of a Machine that has its name"},
		{"G9", "k8sbridge/watch/strays.go", `rollout := rolloutsOf()[kind]; rollout != "" {`, `rollout := rolloutsOf()[kind]; kind == run.KindMachineDeployment {`, bridge, "a rollout whose deployment of Cluster API is gone stays open for ever"},
		{"G10", "activities/capi/set.go", `	s.ManagedFields = nil // the caches have only Millwright's, and the API server would take these for all
`, ``, "./activities/capi", "the finalizer of a set takes the fields of all others from them"},
		{"G11", "k8sbridge/watch/clusterapideployment.go", `notOfDeployment(s), metav1`, `metav1`, bridge, "a set that others changed does not wake its deployment"},
	}
}
