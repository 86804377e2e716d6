package set

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/template"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/phrase"
	"millwright/decide/preflight"
	"millwright/decide/scale"
	observecache "millwright/observe/cache"
	"millwright/observe/capi"
	observeset "millwright/observe/set"
)

// ScaleFacts returns the facts from which the plan for a set is made. The parameter seed is the random seed for new
// names.
func ScaleFacts(
	c *capi.Cache,
	set *clusterv1.MachineSet,
	related capi.RelatedObjects,
	now time.Time,
	seed uint64,
) scale.Facts {
	selector, err := metav1.LabelSelectorAsSelector(&set.Spec.Selector)
	if err != nil {
		selector = labels.Nothing()
	}
	o := scale.Facts{
		Now: now,
		Deletion: scale.Deletion{
			Deleting:     set.DeletionTimestamp != nil,
			Orphaning:    observecache.IsOrphaning(set),
			HasFinalizer: slices.Contains(set.Finalizers, capi.Finalizer),
		}, Settings: scale.Settings{
			DeletionOrder:    deletionOrder(set),
			MinReadyDuration: time.Duration(capi.ValueOrZero(set.Spec.Template.Spec.MinReadySeconds)) * time.Second,
			Remediation:      remediationPolicy(set, related),
		},
		NameSeed: seed,

		Generation: set.Generation,
		Reported: scale.Reported{
			ObservedGeneration: set.Status.ObservedGeneration,
			Generations:        generationRecord(set),
		},

		PauseSentences:     pauseReasons(set, related.Cluster),
		StopReasons:        creationStopReasons(set, related),
		ClusterAPI:         surplusTransferFacts(set, related.Receiver),
		MissingObjectKinds: capi.MissingKinds(related.Templates),
		Preflight:          preflightFacts(c, set, related),
	}
	o.ClusterAPI.ReportsReconciling = true
	var namingErr error
	o.NameParts, namingErr = machineNameParts(set)
	o.Replicas = int(capi.ValueOrZero(set.Spec.Replicas))
	o.InvalidReason = invalidReason(c, set, selector, err, namingErr)
	o.SelectsAll = err == nil && selector.Empty() && o.InvalidReason == ""
	for _, m := range related.Members {
		f := MemberFacts(c, m, set, selector, now)
		if f.Deleting && !f.Updating && f.UpToDate == scale.ConditionTrue {
			o.ClusterAPI.DeletingUpToDateCount++
		}
		o.Members = append(o.Members, f)
	}
	for _, m := range related.Orphans {
		f := scale.Orphan{
			Name:            m.Name,
			UID:             string(m.UID),
			Version:         m.ResourceVersion,
			MatchesSelector: selector.Matches(labels.Set(m.Labels)),
		}
		o.Orphans = append(o.Orphans, f)
		if m.DeletionTimestamp == nil && capi.IsReleasedBySet(m, set) {
			o.ReleasedMachineCount++
		}
	}
	o.ReportedStatus = reportedStatus(set, o)
	return o
}

// invalidReason returns why Millwright does not touch a set; empty: Millwright reconciles it. An empty selector is
// valid.
func invalidReason(
	c *capi.Cache,
	set *clusterv1.MachineSet,
	selector labels.Selector,
	selectorErr, namingErr error,
) string {
	switch shared := capi.SharedReferenceKind(set); {
	case set.Spec.Replicas == nil:
		return "Waiting for spec.replicas set"
	case isContestedSet(set):
		return contestedMessage
	case selectorErr != nil:
		return fmt.Sprintf("the selector cannot be read: %v", selectorErr)
	case shared != "":
		return fmt.Sprintf(
			"the template of the machines refers to a %s, which is no template: all machines would share one object",
			shared,
		)
	case selector.Empty():
		return ""
	case !selector.Matches(labels.Set(MachineLabels(c, set))):
		return "the selector does not match the labels of the template"
	case namingErr != nil:
		return fmt.Sprintf("spec.machineNaming.template cannot be used: %v", namingErr)
	default:
		return ""
	}
}

// surplusTransferFacts returns the set to which a set must move its surplus machines, and the reason if it cannot move
// them.
func surplusTransferFacts(set, receiver *clusterv1.MachineSet) (t scale.ClusterAPISet) {
	if t.MoveTarget = set.Annotations[clusterv1.MachineSetMoveMachinesToMachineSetAnnotation]; t.MoveTarget != "" {
		t.NoMoveReason = MoveRejectionReason(set, receiver)
	}
	return t
}

// isContestedSet reports whether another controller also reconciles a set of Millwright.
func isContestedSet(set *clusterv1.MachineSet) bool {
	return capi.IsReconciledByOtherController(set, clusterv1.MachineSetFinalizer)
}

// contestedMessage is the message for users that explains why Millwright does not touch a contested set. Source of the
// remedy: docs/clusterapi.md.
const contestedMessage = "another controller reconciles this MachineSet: it has added the finalizer " + clusterv1.MachineSetFinalizer +
	"; install the admission policy of Millwright, then remove this finalizer"

// deletionOrder returns which machines are deleted first if no other rule decides. The default is "newer first", from
// the documentation of Cluster API's MachineSet; Cluster API's code uses Random.
func deletionOrder(set *clusterv1.MachineSet) scale.DeletionOrder {
	return scale.DeletionOrder(set.Spec.Deletion.Order)
}

// pauseReasons returns who has paused a set, in the wording of Cluster API.
func pauseReasons(set *clusterv1.MachineSet, cluster *clusterv1.Cluster) (who []string) {
	if cluster != nil && capi.ValueOrZero(cluster.Spec.Paused) {
		who = append(who, capi.ClusterPausedMessage)
	}
	if _, paused := set.Annotations[clusterv1.PausedAnnotation]; paused {
		who = append(who, phrase.PausedSentence("MachineSet"))
	}
	return who
}

// creationStopReasons returns why a set creates no machine; nil if nothing stops the creation. creationStopReasons does
// not return missing templates and failed preflight checks. For an old set that its deployment has closed,
// remediationPolicy returns the reason.
func creationStopReasons(set *clusterv1.MachineSet, related capi.RelatedObjects) []string {
	name := set.Spec.ClusterName
	switch closed := closedReason(set); {
	case closed != "" && !isOutdated(set, related.Deployment):
		return []string{closed}
	case related.Cluster == nil:
		return []string{"Cluster " + name + " does not exist"}
	case related.Cluster.DeletionTimestamp != nil:
		return []string{"Cluster " + name + " is being deleted"}
	case related.HasUnreadObjects():
		return []string{"templates or control plane were not read yet"}
	default:
		return nil
	}
}

// remediationPolicy returns the remediation policy of a set. Source of maxInFlight: spec.remediation.maxInFlight of the
// set's MachineDeployment, rounded up. Without maxInFlight there is no limit. Source of the retries: the RolloutPolicy.
// Without a back-off in the RolloutPolicy there is none, as in Cluster API.
func remediationPolicy(set *clusterv1.MachineSet, related capi.RelatedObjects) (r scale.RemediationPolicy) {
	spec := related.Policy.PolicySpec().Remediation
	r.RetryPolicy = observeset.RetryPolicy(spec, 0)
	r.MaxSurge = observeset.RemediationSurge(spec, capi.ValueOrZero(set.Spec.Replicas))
	d := related.Deployment
	if d == nil {
		name := set.Labels[clusterv1.MachineDeploymentNameLabel]
		// Without its deployment, the limit of the set is unknown, and whether the set is an old set.
		r.Blocker = phrase.TextIf(name != "", "MachineDeployment %s/%s does not exist", set.Namespace, name)
		return r
	}
	if isOutdated(set, d) {
		r.SetIsOutdated, r.SubstitutesElsewhere = !DoesRolloutStandStill(d), closedReason(set)
	}
	if most := d.Spec.Remediation.MaxInFlight; most != nil {
		r.HasMaxInFlight = true
		// If the value does not parse, no machine is replaced.
		r.MaxInFlight, _ = intstr.GetScaledValueFromIntOrPercent(most, int(capi.ValueOrZero(d.Spec.Replicas)), true)
		r.MaxInFlightText = most.String()
	}
	return r
}

// isOutdated reports whether a set has another revision than its deployment; false without a deployment.
func isOutdated(set *clusterv1.MachineSet, d *clusterv1.MachineDeployment) bool {
	return d != nil && d.Annotations[clusterv1.RevisionAnnotation] != set.Annotations[clusterv1.RevisionAnnotation]
}

// closedReason returns that a set is closed, as one sentence; empty: it is not closed.
func closedReason(set *clusterv1.MachineSet) string {
	return phrase.TextIf(
		set.Annotations[clusterv1.DisableMachineCreateAnnotation] == "true",
		"MachineSet has the annotation %s",
		clusterv1.DisableMachineCreateAnnotation,
	)
}

// generationRecord returns the recorded generations of failed machines of a set. An annotation that cannot be read counts
// as no record.
func generationRecord(set *clusterv1.MachineSet) (r scale.GenerationRecord) {
	var g v1alpha1.FailedGenerations
	if json.Unmarshal([]byte(set.Annotations[v1alpha1.AnnotationFailedGenerations]), &g) != nil {
		return r
	}
	return scale.GenerationRecord{Failed: int(max(g.Count, 0)), Last: g.LastFailedAt.Time}
}

// GenerationAnnotation returns the value of the annotation with the record of failed generations; empty if no generation
// failed.
func GenerationAnnotation(r scale.GenerationRecord) string {
	if r.Failed == 0 {
		return ""
	}
	text, _ := json.Marshal(v1alpha1.FailedGenerations{ // Marshal cannot fail for numbers and times
		Count: int32(r.Failed), LastFailedAt: metav1.NewTime(r.Last).Rfc3339Copy(),
	})
	return string(text)
}

// DoesRolloutStandStill reports whether the rollout of a MachineDeployment removes no machine of an old set now: it is
// paused or blocked, for example because it waits for an approval, or people delete the machines. Then nothing but the
// remediation replaces the unhealthy machines of old sets.
func DoesRolloutStandStill(d *clusterv1.MachineDeployment) bool {
	_, paused := d.Annotations[clusterv1.PausedAnnotation]
	return paused || capi.ValueOrZero(d.Spec.Paused) ||
		d.Spec.Rollout.Strategy.Type == clusterv1.OnDeleteMachineDeploymentStrategyType ||
		capi.ConditionOfType(d.Status.Conditions, vocabulary.ConditionBlocked).Status == metav1.ConditionTrue
}

// machineNameParts returns the parts of the name of a new machine, without the random part. Source of the variables:
// Cluster API's documentation of spec.machineNaming.template.
func machineNameParts(set *clusterv1.MachineSet) ([]string, error) {
	const random = "\x00"
	text := cmp.Or(set.Spec.MachineNaming.Template, "{{ .machineSet.name }}-{{ .random }}")
	t, err := template.New("name").Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	var name bytes.Buffer
	err = t.Execute(&name, map[string]any{
		"cluster": map[string]string{
			"name": set.Spec.ClusterName,
		},
		"machineSet": map[string]string{"name": set.Name},
		"random":     random,
	})
	if err != nil {
		return nil, fmt.Errorf("execute: %w", err)
	}
	parts := strings.Split(name.String(), random)
	if len(parts) < 2 {
		return nil, fmt.Errorf("it has no {{ .random }}")
	}
	return parts, nil
}

// preflightFacts returns the facts for the checks of the control plane. If the Cluster has no control plane, or its
// control plane has no version, no check runs.
func preflightFacts(c *capi.Cache, set *clusterv1.MachineSet, related capi.RelatedObjects) preflight.Facts {
	cp := related.ControlPlane
	if cp == nil {
		return preflight.Facts{}
	}
	bootstrap := set.Spec.Template.Spec.Bootstrap.ConfigRef
	o := preflight.Facts{
		Machines: preflight.MachineFacts{
			Version: set.Spec.Template.Spec.Version,
			Kubeadm: bootstrap.Kind == "KubeadmConfigTemplate" && bootstrap.APIGroup == "bootstrap.cluster.x-k8s.io",
		},
		Settings: preflight.Settings{
			Checks: c.Cluster.Preflight.Checks,
			Strict: true, RequireReplicas: c.Cluster.Preflight.RequiresReplicas,
			Skip: skippedChecksText(set, related),
		},
	}
	name := set.Namespace + "/" + cp.Ref.Name
	switch {
	case cp.Object != nil:
		o.ControlPlane = controlPlaneFacts(cp.Object, related.Cluster)
		if o.ControlPlane.Version == "" {
			o.ControlPlane = nil
		}
	default:
		o.ControlPlane = &preflight.ControlPlane{Kind: cp.Ref.Kind, Name: name, Absent: cp.WasRead, Unread: !cp.WasRead}
	}
	return o
}

// skippedChecksText returns the checks that a set skips. If the set has no annotation with skipped checks, the
// annotation of the bootstrap template is used, as in Cluster API.
func skippedChecksText(set *clusterv1.MachineSet, related capi.RelatedObjects) string {
	skip := set.Annotations[clusterv1.MachineSetSkipPreflightChecksAnnotation]
	ref := set.Spec.Template.Spec.Bootstrap.ConfigRef
	for _, f := range related.Templates {
		if skip == "" && f.Object != nil && f.Ref == ref {
			skip = f.Object.GetAnnotations()[clusterv1.MachineSetSkipPreflightChecksAnnotation]
		}
	}
	return skip
}
