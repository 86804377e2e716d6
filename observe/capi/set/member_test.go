package set_test

import (
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/decide/scale"
	"millwright/observe/cache"
	"millwright/observe/capi"
	"millwright/observe/capi/capitest"
	capiset "millwright/observe/capi/set"
	"millwright/observe/observetest"
)

// newCache returns a Cache for functions that read only their arguments.
func newCache() *capi.Cache {
	return capitest.NewOfflineCache(capitest.DefaultSettings, cache.PreflightConfig{})
}

// memberFacts returns the facts about a machine of set s.
func memberFacts(m *clusterv1.Machine) scale.Member {
	return capiset.ScaleFacts(newCache(), capitest.NewSet("s", 1), capitest.NewRelatedObjects(m), capitest.Noon, 0).Members[0]
}

func withoutStatus(m *clusterv1.Machine) { m.Status = clusterv1.MachineStatus{} }

func withAnnotation(key string) capitest.MachineChange {
	return capitest.WithAnnotation[*clusterv1.Machine](key, "")
}

// withLongDrain gives a machine a deletion with this reason, and a drain that began this long before noon.
func withLongDrain(age time.Duration, reason string) capitest.MachineChange {
	return func(m *clusterv1.Machine) {
		capitest.AsDeletingObject(m)
		began := metav1.NewTime(capitest.Noon.Add(-age))
		m.Status.Deletion = &clusterv1.MachineDeletionStatus{NodeDrainStartTime: began}
		capitest.WithConditionReason(
			clusterv1.MachineDeletingCondition,
			metav1.ConditionTrue,
			reason,
			"* Pod a: cannot evict pod as it would violate the pod's disruption budget. The budget needs 2 pods\n* Pod b: failed to evict Pod",
		)(
			m,
		)
	}
}

// Each row tests one fact about a machine, with a value that differs from the fact's value for a machine without a
// status.
func TestMemberFacts(t *testing.T) {
	const (
		healthCheck, remediated = clusterv1.MachineHealthCheckSucceededCondition, clusterv1.MachineOwnerRemediatedCondition
		ready, upToDate         = clusterv1.MachineReadyCondition, clusterv1.MachineUpToDateCondition
		yes, no, unknown        = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	)
	missing := map[string]bool{}
	for _, name := range observetest.FieldNamesWithoutPart("MCM", reflect.TypeFor[scale.Member]()) {
		missing[name] = true
	}
	set := capitest.NewSet("s", 1)
	plain := capiset.ScaleFacts(newCache(), set, capitest.NewRelatedObjects(capitest.NewMachine("plain", set, withoutStatus, func(m *clusterv1.Machine) {
		m.Labels = map[string]string{clusterv1.ClusterNameLabel: "other"}
		m.ResourceVersion = "1"
		m.CreationTimestamp = metav1.Time{}
	})), capitest.Noon, 0).Members[0]
	plain.Drift, plain.Priority = "", 0
	for _, row := range []struct {
		name, fact string
		change     capitest.MachineChange
		want       any
	}{
		{fact: "Name", want: "m"},
		{fact: "UID", want: "uid-m"},
		{fact: "Version", want: "900"},
		{fact: "CreatedAt", want: capitest.MinutesBeforeNoon(60).Time},
		{fact: "MatchesSelector", want: true},
		{name: "other labels", fact: "MatchesSelector", change: func(m *clusterv1.Machine) { m.Labels["pool"] = "x" }, want: false},
		{fact: "Deleting", change: capitest.AsDeletingObject[*clusterv1.Machine], want: true},
		{fact: "DeletingSince", change: capitest.AsDeletingObject[*clusterv1.Machine], want: capitest.MinutesBeforeNoon(1).Time},
		{fact: "Drift", change: func(m *clusterv1.Machine) { m.Labels["pool"] = "x" }, want: "labels"},
		{name: "none", fact: "Drift", want: ""},
		{fact: "Phase", want: "Running"},
		{fact: "Updating", change: withAnnotation(clusterv1.UpdateInProgressAnnotation), want: true},
		{fact: "MovedForUpdate", change: withAnnotation(clusterv1.PendingAcknowledgeMoveAnnotation), want: true},
		{fact: "ClusterAPI.UpdateDue", change: withAnnotation(clusterv1.UpdateInProgressAnnotation), want: true},
		{fact: "DeleteFirst", change: withAnnotation(clusterv1.DeleteMachineAnnotation), want: true},
		{fact: "Priority", want: 3},
		{fact: "Joined", want: true},
		{name: "without a node", fact: "Joined", change: withoutStatus, want: false},
		{name: "whose node is not recorded yet", fact: "Joined", change: func(m *clusterv1.Machine) {
			withoutStatus(m)
			capitest.WithCondition(clusterv1.MachineNodeHealthyCondition, metav1.ConditionTrue)(m)
		}, want: true},
		{name: "without a node", fact: "NodeState", change: func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "" }, want: scale.NoNode},
		{name: "NodeHealthy is False", fact: "NodeState", change: capitest.WithCondition(clusterv1.MachineNodeHealthyCondition, no), want: scale.NodeUnhealthy},
		{name: "NodeHealthy is Unknown", fact: "NodeState", change: capitest.WithCondition(clusterv1.MachineNodeHealthyCondition, unknown), want: scale.NodeUnknown},
		{name: "NodeHealthy is not reported", fact: "NodeState", change: capitest.WithoutCondition(clusterv1.MachineNodeHealthyCondition), want: scale.NodeHealthy},
		{name: "NodeHealthy is True", fact: "NodeState", want: scale.NodeHealthy},
		{fact: "Ready", want: scale.ConditionTrue},
		{name: "no", fact: "Ready", change: capitest.WithCondition(ready, no), want: scale.ConditionFalse},
		{name: "unknown", fact: "Ready", change: capitest.WithCondition(ready, unknown), want: scale.ConditionUnknown},
		{name: "not reported", fact: "Ready", change: capitest.WithoutCondition(ready), want: scale.ConditionStatus("")},
		{fact: "NotReadyReason", change: capitest.WithConditionReason(ready, no, "NotReady", "the kubelet stopped"), want: "the kubelet stopped"},
		{name: "while it is True", fact: "NotReadyReason", change: capitest.WithConditionReason(ready, yes, "Ready", "fine"), want: ""},
		{fact: "ReadySince", want: capitest.MinutesBeforeNoon(60).Time},
		{fact: "UpToDate", want: scale.ConditionTrue},
		{name: "no", fact: "UpToDate", change: capitest.WithCondition(upToDate, no), want: scale.ConditionFalse},
		{fact: "OutdatedReason", change: capitest.WithConditionReason(upToDate, no, "NotUpToDate", "another version"), want: "another version"},
		{fact: "Healthy", change: capitest.WithCondition(healthCheck, no), want: scale.ConditionFalse},
		{name: "unknown", fact: "Healthy", change: capitest.WithCondition(healthCheck, unknown), want: scale.ConditionUnknown},
		{name: "asked for", fact: "Marked", change: capitest.WithCondition(remediated, no), want: true},
		{fact: "ClusterAPI.MarkMessage", change: capitest.WithConditionReason(remediated, no, "RemediationDeferred", "one after the other"), want: "one after the other"},
		{name: "while it is not asked for", fact: "ClusterAPI.MarkMessage", change: capitest.WithConditionReason(remediated, yes, "Remediated", "done"), want: ""},
		{fact: "ClusterAPI.DrainBlockers", change: withLongDrain(6*time.Minute, "DrainingNode"), want: []string{scale.DrainBudgets, scale.DrainEvictionErrors}},
		{name: "of a short drain", fact: "ClusterAPI.DrainBlockers", change: withLongDrain(5*time.Minute, "DrainingNode"), want: []string(nil)},
		{name: "after the drain", fact: "ClusterAPI.DrainBlockers", change: withLongDrain(time.Hour, "DeletingNode"), want: []string(nil)},
		{name: "done", fact: "Marked", change: capitest.WithCondition(remediated, yes), want: false},
		{name: "unknown", fact: "Marked", change: capitest.WithCondition(remediated, unknown), want: false},
		{name: "a person asked", fact: "Urgent", change: func(m *clusterv1.Machine) {
			capitest.AsUnhealthyMachine(m)
			withAnnotation(clusterv1.RemediateMachineAnnotation)(m)
		}, want: true},
		{name: "before the health check saw it", fact: "Urgent", change: withAnnotation(clusterv1.RemediateMachineAnnotation), want: false},
	} {
		t.Run(strings.TrimPrefix(row.name+", "+row.fact, ", "), func(t *testing.T) {
			m := capitest.NewMachine("m", set)
			if row.change != nil {
				row.change(m)
			}
			assert.Equal(t, row.want, observetest.FieldByName(memberFacts(m), row.fact))
		})
		if !assert.ObjectsAreEqual(row.want, observetest.FieldByName(plain, row.fact)) {
			delete(missing, row.fact)
		}
	}
	for name, lacks := range missing {
		assert.False(t, lacks, "fact %s has no row that shows it", name)
	}
}

// For the deletion order, Millwright and Cluster API count the same machines as unhealthy.
func TestUnhealthyMachinesMatchClusterAPI(t *testing.T) {
	for _, row := range []struct {
		name   string
		change capitest.MachineChange
		want   bool
	}{
		{"no node", withoutStatus, true},
		{"NodeHealthy is False", capitest.WithCondition(clusterv1.MachineNodeHealthyCondition, metav1.ConditionFalse), true},
		{"HealthCheckSucceeded is False", capitest.WithCondition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse), true},
		{"NodeHealthy is Unknown", capitest.WithCondition(clusterv1.MachineNodeHealthyCondition, metav1.ConditionUnknown), false},
		{"HealthCheckSucceeded is Unknown", capitest.WithCondition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionUnknown), false},
		{"all fine", func(*clusterv1.Machine) {}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.want, memberFacts(capitest.NewMachine("m", capitest.NewSet("s", 1), row.change)).IsUnhealthy())
		})
	}
}

func TestMachineLabels(t *testing.T) {
	const long = "a-name-of-sixty-four-characters-which-no-value-of-a-label-can-be"
	require.Len(t, long, 64)
	for _, row := range []struct {
		name     string
		set      *clusterv1.MachineSet
		settings capi.Settings
		want     map[string]string // labels in addition to pool, cluster and set
	}{
		{"those of the template, the Cluster and the set", capitest.NewSet("s", 1), capitest.DefaultSettings, nil},
		{
			"those of the deployment", capitest.NewSet("s", 1, capitest.WithDeploymentOwner, func(s *clusterv1.MachineSet) {
				s.Labels[clusterv1.MachineDeploymentUniqueLabel] = "h"
			}), capitest.DefaultSettings,
			map[string]string{clusterv1.MachineDeploymentNameLabel: "d", clusterv1.MachineDeploymentUniqueLabel: "h"},
		},
		{
			"a name of 63 characters", capitest.NewSet(long[:63], 1), capitest.DefaultSettings,
			map[string]string{clusterv1.MachineSetNameLabel: long[:63]},
		},
		{
			"a longer name", capitest.NewSet(long, 1), capitest.DefaultSettings,
			map[string]string{clusterv1.MachineSetNameLabel: labelValueOfSetName(long)},
		},
		{
			"the filter of the other controllers", capitest.NewSet("s", 1),
			capi.Settings{WatchFilter: capitest.WatchFilter, UpstreamWatchFilter: "upstream"},
			map[string]string{clusterv1.WatchLabel: "upstream"},
		},
		{
			"their filter instead of that of the template", capitest.NewSet("s", 1, withTemplateLabel(clusterv1.WatchLabel, "x")),
			capi.Settings{WatchFilter: capitest.WatchFilter, UpstreamWatchFilter: "upstream"},
			map[string]string{clusterv1.WatchLabel: "upstream"},
		},
		{"not our filter: nobody would reconcile the machine", capitest.NewSet("s", 1, withTemplateLabel(clusterv1.WatchLabel, capitest.WatchFilter)), capitest.DefaultSettings, nil},
		{
			"another filter of the template", capitest.NewSet("s", 1, withTemplateLabel(clusterv1.WatchLabel, "x")), capitest.DefaultSettings,
			map[string]string{clusterv1.WatchLabel: "x"},
		},
		{
			"the Cluster of the set", capitest.NewSet("s", 1, withTemplateLabel(clusterv1.ClusterNameLabel, "x"), withTemplateLabel(clusterv1.MachineSetNameLabel, "x")), capitest.DefaultSettings, nil,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			want := map[string]string{
				"pool":                        row.set.Name,
				clusterv1.ClusterNameLabel:    "c",
				clusterv1.MachineSetNameLabel: row.set.Name,
			}
			maps.Copy(want, row.want)
			before := row.set.DeepCopy()
			assert.Equal(
				t,
				want,
				capiset.MachineLabels(capitest.NewOfflineCache(row.settings, cache.PreflightConfig{}), row.set),
			)
			assert.Equal(t, before, row.set, "the set belongs to a cache")
		})
	}
	t.Run("two long names differ, and fit", func(t *testing.T) {
		a, b := labelValueOfSetName(long), labelValueOfSetName(long+"x")
		assert.NotEqual(t, a, b)
		assert.Regexp(t, `^hash_[A-Za-z0-9_-]{6}_z$`, a)
	})
}

func withTemplateLabel(key, value string) capitest.SetChange {
	return func(s *clusterv1.MachineSet) { s.Spec.Template.Labels[key] = value }
}

func labelValueOfSetName(name string) string {
	return capiset.MachineLabels(newCache(), capitest.NewSet(name, 1))[clusterv1.MachineSetNameLabel]
}

// Cluster API's own controllers look for this label value. Source of the value: Cluster API's function
// format.MustFormatValue, 32-bit FNV-1a in URL-safe base64 without padding.
func TestLabelValueOfALongSetName(t *testing.T) {
	assert.Equal(t, "hash_2W8PhQ_z", labelValueOfSetName(strings.Repeat("a", 64)))
}

func TestNewMachine(t *testing.T) {
	set := capitest.NewSet("s", 1, func(s *clusterv1.MachineSet) {
		s.Spec.Template.Spec.FailureDomain = "zone-a"
		s.Spec.Template.Spec.MinReadySeconds = new(int32(5))
		s.Spec.Template.Spec.ClusterName = "" // the webhook sets this field; the ClusterName of the set itself is used
	})
	before := set.DeepCopy()
	m := capiset.NewMachine(newCache(), set, "s-x")
	assert.Equal(t, metav1.ObjectMeta{
		Name:        "s-x",
		Namespace:   capitest.Namespace,
		Labels:      capiset.MachineLabels(newCache(), set),
		Annotations: map[string]string{"team": "web"},
		Finalizers:  []string{clusterv1.MachineFinalizer},
		OwnerReferences: []metav1.OwnerReference{
			{
				APIVersion:         "cluster.x-k8s.io/v1beta2",
				Kind:               "MachineSet",
				Name:               "s",
				UID:                "uid-s",
				Controller:         new(true),
				BlockOwnerDeletion: new(true),
			},
		},
	}, m.ObjectMeta)
	assert.Equal(t, metav1.TypeMeta{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Machine"}, m.TypeMeta)
	assert.Equal(t, "c", m.Spec.ClusterName)
	assert.Equal(t, "v1.31.2", m.Spec.Version)
	assert.Equal(t, "zone-a", m.Spec.FailureDomain)
	assert.Equal(t, before, set, "the set belongs to a cache")
	capiset.NewMachine(newCache(), set, "s-x").Annotations["x"] = "y"
	assert.Equal(t, before, set, "and shares nothing with the machine")
}

func combineMachineChanges(changes ...capitest.MachineChange) capitest.MachineChange {
	return observetest.CombineChanges(changes...)
}

func TestDriftText(t *testing.T) {
	label := func(m *clusterv1.Machine) { m.Labels["theirs"] = "x" }
	annotation := func(m *clusterv1.Machine) { metav1.SetMetaDataAnnotation(&m.ObjectMeta, "theirs", "x") }
	deletion := func(change func(*clusterv1.MachineDeletionSpec)) capitest.MachineChange {
		return func(m *clusterv1.Machine) { change(&m.Spec.Deletion) }
	}
	owned := func(change capitest.MachineChange) capitest.MachineChange {
		return combineMachineChanges(
			change,
			capitest.WithFieldsOf[*clusterv1.Machine](capi.MachineSetFieldManager, ownedSpec),
		)
	}
	for _, row := range []struct {
		name   string
		change capitest.MachineChange
		alive  string
		going  string // drift of a machine that is being deleted
	}{
		{"nothing", func(*clusterv1.Machine) {}, "", ""},
		{"a label has another value", func(m *clusterv1.Machine) { m.Labels["pool"] = "x" }, "labels", ""},
		{"a label is missing", func(m *clusterv1.Machine) { delete(m.Labels, clusterv1.MachineSetNameLabel) }, "labels", ""},
		{"a label of others", label, "", ""},
		{"a label that Millwright applied and that is wanted no more", combineMachineChanges(label, capitest.WithManagedFields(capi.MachineSetFieldManager, "theirs", "team")), "labels", ""},
		{"a label that another manager applied", combineMachineChanges(label, capitest.WithManagedFields("other", "theirs", "theirs")), "", ""},
		{"such a label that is gone already", capitest.WithManagedFields(capi.MachineSetFieldManager, "theirs", "team"), "", ""},
		{"an annotation is missing", func(m *clusterv1.Machine) { m.Annotations = nil }, "annotations", ""},
		{"an annotation has another value", func(m *clusterv1.Machine) { m.Annotations["team"] = "x" }, "annotations", ""},
		{"an annotation of others", annotation, "", ""},
		{"an annotation that Millwright applied and that is wanted no more", combineMachineChanges(annotation, capitest.WithManagedFields(capi.MachineSetFieldManager, "pool", "theirs")), "annotations", ""},
		{"a deletion timeout of 0 is unlimited", owned(deletion(func(d *clusterv1.MachineDeletionSpec) { d.NodeDeletionTimeoutSeconds = new(int32(0)) })), "nodeDeletionTimeoutSeconds", "nodeDeletionTimeoutSeconds"},
		{"the default of the webhook", owned(deletion(func(d *clusterv1.MachineDeletionSpec) { d.NodeDeletionTimeoutSeconds = new(int32(10)) })), "", ""},
		{"no drain timeout is one of 0", owned(deletion(func(d *clusterv1.MachineDeletionSpec) { d.NodeDrainTimeoutSeconds = new(int32(0)) })), "", ""},
		{"no minReadySeconds is 0", owned(func(m *clusterv1.Machine) { m.Spec.MinReadySeconds = new(int32(0)) }), "", ""},
		{"several", owned(combineMachineChanges(gate, taint, func(m *clusterv1.Machine) { m.Labels = nil })), "labels, readinessGates, taints", "readinessGates, taints"},
		{"without managed fields", capitest.WithoutManagedFields[*clusterv1.Machine], "managedFields", ""},
		{"with managed fields of Cluster API only", combineMachineChanges(capitest.WithoutManagedFields, capitest.WithManagedFields("capi-machineset", "pool", "team")), "", ""},
		{"with managed fields of the status only", func(m *clusterv1.Machine) { m.ManagedFields[0].Subresource = "status" }, "managedFields", ""},
		{"what does not change in place", func(m *clusterv1.Machine) {
			m.Spec.Version, m.Spec.FailureDomain, m.Spec.ProviderID = "v1.0.0", "elsewhere", "x://y"
			m.Spec.Bootstrap.DataSecretName = new("data")
			m.Finalizers = nil
		}, "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			set := capitest.NewSet("s", 1)
			assert.Equal(t, row.alive, capiset.DriftText(newCache(), capitest.NewMachine("m", set, row.change), set))
			assert.Equal(
				t,
				row.going,
				capiset.DriftText(newCache(), capitest.NewMachine("m", set, row.change, capitest.AsDeletingObject), set),
				"while it is being deleted",
			)
		})
	}
}

// With a filter, Cluster API's core drops the events of a machine without the filter's value. A deletion that waited for
// a pause would then never go on.
func TestAMachineThatIsBeingDeletedGetsTheFilterOfClusterAPI(t *testing.T) {
	c := capitest.NewOfflineCache(
		capi.Settings{WatchFilter: capitest.WatchFilter, UpstreamWatchFilter: "upstream"},
		cache.PreflightConfig{},
	)
	set := capitest.NewSet("s", 1)
	for _, before := range []map[string]string{nil, {"theirs": "x"}, {"theirs": "x", clusterv1.WatchLabel: "other"}} {
		m := capitest.NewMachine("m", set, capitest.AsDeletingObject, func(m *clusterv1.Machine) { m.Labels = before })
		assert.Equal(t, "labels", capiset.DriftText(c, m, set))
		synced := capiset.SyncedMachine(c, set, m)
		want := maps.Clone(before)
		if want == nil {
			want = map[string]string{}
		}
		want[clusterv1.WatchLabel] = "upstream"
		assert.Equal(t, want, synced.Labels, "no other label changes")
		assert.Empty(t, capiset.DriftText(c, synced, set))
		assert.Equal(t, before, m.Labels, "the machine stays unchanged")
	}
}

// ownedSpec is a managed-fields entry with the fields of a spec that change in place.
const ownedSpec = `{"f:spec":{"f:minReadySeconds":{},
	"f:deletion":{".":{},"f:nodeDrainTimeoutSeconds":{},"f:nodeVolumeDetachTimeoutSeconds":{},"f:nodeDeletionTimeoutSeconds":{}},
	"f:readinessGates":{".":{},"k:{\"conditionType\":\"x\"}":{".":{},"f:conditionType":{},"f:polarity":{}}},
	"f:taints":{".":{},"k:{\"effect\":\"NoSchedule\",\"key\":\"x\"}":{".":{},"f:effect":{},"f:key":{},"f:value":{}}}}}`

func gate(m *clusterv1.Machine) {
	m.Spec.ReadinessGates = append(
		m.Spec.ReadinessGates,
		clusterv1.MachineReadinessGate{ConditionType: "x", Polarity: clusterv1.NegativePolarityCondition},
	)
}

func taint(m *clusterv1.Machine) {
	m.Spec.Taints = append(
		m.Spec.Taints,
		clusterv1.MachineTaint{Key: "x", Value: "y", Effect: corev1.TaintEffectNoSchedule},
	)
}

// The template lacks what the machine has. If Millwright or Cluster API's controller of MachineSets wrote it, a sync
// removes it. If another client, controller or webhook added it, it stays, and the set does not sync again and again.
func TestASyncRemovesOnlyWhatASetWrote(t *testing.T) {
	deletion := func(change func(*clusterv1.MachineDeletionSpec)) capitest.MachineChange {
		return func(m *clusterv1.Machine) { change(&m.Spec.Deletion) }
	}
	set := capitest.NewSet("s", 1)
	for drift, change := range map[string]capitest.MachineChange{
		"readinessGates":          gate,
		"taints":                  taint,
		"minReadySeconds":         func(m *clusterv1.Machine) { m.Spec.MinReadySeconds = new(int32(7)) },
		"nodeDrainTimeoutSeconds": deletion(func(d *clusterv1.MachineDeletionSpec) { d.NodeDrainTimeoutSeconds = new(int32(7)) }),
		"nodeVolumeDetachTimeoutSeconds": deletion(
			func(d *clusterv1.MachineDeletionSpec) { d.NodeVolumeDetachTimeoutSeconds = new(int32(7)) },
		),
		"nodeDeletionTimeoutSeconds": deletion(
			func(d *clusterv1.MachineDeletionSpec) { d.NodeDeletionTimeoutSeconds = new(int32(7)) },
		),
	} {
		for manager, removed := range map[string]bool{
			capi.MachineSetFieldManager: true, "capi-machineset": true, "kubectl-patch": false, "": false,
		} {
			t.Run(drift+" of "+manager, func(t *testing.T) {
				for _, deleting := range []bool{false, true} {
					m := capitest.NewMachine("m", set, change)
					if manager != "" { // a webhook's value has no manager
						capitest.WithFieldsOf[*clusterv1.Machine](manager, ownedSpec)(m)
					}
					if deleting {
						capitest.AsDeletingObject(m)
					}
					before := m.DeepCopy()
					synced := capiset.SyncedMachine(newCache(), set, m)
					assert.Equal(t, before, m, "the machine belongs to a cache")
					if !removed {
						assert.Empty(t, capiset.DriftText(newCache(), m, set))
						assert.Equal(t, before, synced)
						continue
					}
					assert.Equal(t, drift, capiset.DriftText(newCache(), m, set))
					assert.Equal(t, capitest.NewMachine("m", set).Spec, synced.Spec)
					assert.Empty(t, capiset.DriftText(newCache(), synced, set), "the next decision does not repeat the sync")
				}
			})
		}
	}
}

// A sync of a machine that another controller has also written keeps the order and the items of the other controller.
func TestASyncKeepsTheItemsOfOthers(t *testing.T) {
	set := capitest.NewSet("s", 1, func(s *clusterv1.MachineSet) {
		s.Spec.Template.Spec.ReadinessGates = []clusterv1.MachineReadinessGate{
			{ConditionType: "new"},
			{ConditionType: "both"},
		}
		s.Spec.Template.Spec.Taints = []clusterv1.MachineTaint{
			{Key: "both", Value: "new", Effect: corev1.TaintEffectNoSchedule},
			{Key: "both", Effect: corev1.TaintEffectNoExecute},
		}
	})
	m := capitest.NewMachine("m", set, func(m *clusterv1.Machine) {
		m.Spec.ReadinessGates = []clusterv1.MachineReadinessGate{
			{ConditionType: "theirs"}, {ConditionType: "both", Polarity: clusterv1.NegativePolarityCondition},
		}
		m.Spec.Taints = []clusterv1.MachineTaint{
			{Key: "theirs", Effect: corev1.TaintEffectNoSchedule},
			{Key: "both", Value: "old", Effect: corev1.TaintEffectNoSchedule},
		}
	})
	synced := capiset.SyncedMachine(newCache(), set, m)
	assert.Equal(t, []clusterv1.MachineReadinessGate{
		{
			ConditionType: "theirs",
		},
		{ConditionType: "both", Polarity: clusterv1.NegativePolarityCondition},
		{ConditionType: "new"},
	}, synced.Spec.ReadinessGates, "the polarity is theirs")
	assert.Equal(t, []clusterv1.MachineTaint{
		{Key: "theirs", Effect: corev1.TaintEffectNoSchedule},
		{Key: "both", Value: "new", Effect: corev1.TaintEffectNoSchedule},
		{Key: "both", Effect: corev1.TaintEffectNoExecute},
	}, synced.Spec.Taints)
	assert.Empty(t, capiset.DriftText(newCache(), synced, set))
}

// A sync gives a machine the template of its set, with any template, and the next decision does not repeat the sync.
func TestASyncedMachineHasNoDrift(t *testing.T) {
	set := capitest.NewSet("s", 1, func(s *clusterv1.MachineSet) {
		spec := &s.Spec.Template.Spec
		spec.ReadinessGates = []clusterv1.MachineReadinessGate{{ConditionType: "x"}}
		spec.Taints = []clusterv1.MachineTaint{{Key: "x", Effect: corev1.TaintEffectNoSchedule}}
		spec.MinReadySeconds = new(int32(5))
		spec.Deletion = clusterv1.MachineDeletionSpec{
			NodeDrainTimeoutSeconds:        new(int32(1)),
			NodeVolumeDetachTimeoutSeconds: new(int32(2)),
			NodeDeletionTimeoutSeconds:     new(int32(3)),
		}
		spec.Version, spec.FailureDomain = "v1.32.0", "zone-a"
		s.Spec.Template.Labels["x"], s.Spec.Template.Annotations["y"] = "x", "y"
	})
	old := capitest.NewMachine("m", capitest.NewSet("s", 1))
	assert.Equal(
		t,
		"labels, annotations, readinessGates, nodeDrainTimeoutSeconds, nodeVolumeDetachTimeoutSeconds, nodeDeletionTimeoutSeconds, minReadySeconds, taints",
		capiset.DriftText(newCache(), old, set),
	)
	synced := capiset.SyncedMachine(newCache(), set, old)
	assert.Empty(t, capiset.DriftText(newCache(), synced, set))
	assert.Equal(t, old.Spec.Version, synced.Spec.Version, "it does not change in place")
	assert.Empty(t, synced.Spec.FailureDomain)
	assert.Equal(t, old.Spec.InfrastructureRef, synced.Spec.InfrastructureRef)

	made := capiset.NewMachine(newCache(), set, "m")
	made.ManagedFields = old.ManagedFields
	assert.Empty(t, capiset.DriftText(newCache(), made, set))
}

// clusterctl move and a restore of a backup make all fields their own, and an API server may lose managed fields. A sync
// makes Millwright the owner of the template's fields, so that it later removes what leaves the template.
func TestASyncClaimsTheFieldsOfTheTemplate(t *testing.T) {
	set := capitest.NewSet("s", 1, func(s *clusterv1.MachineSet) {
		s.Spec.Template.Labels["x"] = "x"
		s.Spec.Template.Spec.MinReadySeconds = new(int32(5))
		s.Spec.Template.Spec.Deletion.NodeDrainTimeoutSeconds = new(int32(1))
		s.Spec.Template.Spec.ReadinessGates = []clusterv1.MachineReadinessGate{{ConditionType: "x"}}
		s.Spec.Template.Spec.Taints = []clusterv1.MachineTaint{{Key: "x", Effect: corev1.TaintEffectNoSchedule}}
	})
	m := capitest.NewMachine("m", set, capitest.WithoutManagedFields, func(m *clusterv1.Machine) {
		m.Labels["theirs"] = "x"
		m.Spec.Taints = append(m.Spec.Taints, clusterv1.MachineTaint{Key: "theirs", Effect: corev1.TaintEffectNoSchedule})
	}, capitest.WithFieldsOf[*clusterv1.Machine]("clusterctl", ownedSpec))
	assert.Equal(t, "managedFields", capiset.DriftText(newCache(), m, set))
	synced := capiset.SyncedMachine(newCache(), set, m)
	assert.Empty(t, capiset.DriftText(newCache(), synced, set))
	assert.Len(t, m.ManagedFields, 1)
	require.Len(t, synced.ManagedFields, 2)
	assert.Equal(t, "clusterctl", synced.ManagedFields[0].Manager)
	claim := synced.ManagedFields[1]
	assert.Equal(
		t,
		[]any{capi.MachineSetFieldManager, metav1.ManagedFieldsOperationUpdate, "cluster.x-k8s.io/v1beta2", "FieldsV1"},
		[]any{claim.Manager, claim.Operation, claim.APIVersion, claim.FieldsType},
	)
	assert.JSONEq(t, `{
		"f:metadata":{
			"f:annotations":{"f:team":{}},
			"f:labels":{"f:cluster.x-k8s.io/cluster-name":{},"f:cluster.x-k8s.io/set-name":{},"f:pool":{},"f:x":{}}},
		"f:spec":{
			"f:deletion":{"f:nodeDrainTimeoutSeconds":{}},
			"f:minReadySeconds":{},
			"f:readinessGates":{"k:{\"conditionType\":\"x\"}":{".":{},"f:conditionType":{}}},
			"f:taints":{"k:{\"effect\":\"NoSchedule\",\"key\":\"x\"}":{".":{},"f:effect":{},"f:key":{}}}}}`,
		claim.FieldsV1.GetRawString())

	bare := capiset.SyncedMachine(newCache(), capitest.NewSet("s", 1), synced)
	assert.Equal(t, []clusterv1.MachineTaint{{Key: "theirs", Effect: corev1.TaintEffectNoSchedule}}, bare.Spec.Taints)
	assert.Empty(t, bare.Spec.ReadinessGates)
	assert.Equal(t, clusterv1.MachineDeletionSpec{}, bare.Spec.Deletion)
	assert.Nil(t, bare.Spec.MinReadySeconds)
	assert.NotContains(t, bare.Labels, "x")
	assert.Contains(t, bare.Labels, "theirs")
}

func TestRemediationReason(t *testing.T) {
	for _, row := range []struct {
		change          capitest.MachineChange
		reason, message string
	}{
		{func(*clusterv1.Machine) {}, "", ""},
		{capitest.WithConditionReason(clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, "R", "m"), "R", "m"},
		{capitest.WithConditionReason(clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionTrue, "R", "m"), "", ""},
	} {
		reason, message := capiset.RemediationReason(capitest.NewMachine("m", capitest.NewSet("s", 1), row.change))
		assert.Equal(t, [2]string{row.reason, row.message}, [2]string{reason, message})
	}
}

// A machine that has been ready for less than minReadySeconds is not available. The set reconciles again when the
// machine becomes available.
func TestMachineIsAvailableAfterMinReadySeconds(t *testing.T) {
	set := capitest.NewSet(
		"s",
		1,
		func(s *clusterv1.MachineSet) { s.Spec.Template.Spec.MinReadySeconds = new(int32(90 * 60)) },
	)
	plan := scale.PlanSet(
		capiset.ScaleFacts(newCache(), set, capitest.NewRelatedObjects(capitest.NewMachine("m", set)), capitest.Noon, 0),
	)
	assert.Equal(t, []int{1, 0}, []int{plan.Status.Counts.Ready, plan.Status.Counts.Available})
	assert.Equal(t, capitest.Noon.Add(30*time.Minute), plan.Decision.Recheck)
}
