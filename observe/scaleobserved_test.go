package observe_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/decide/preflight"
	"millwright/decide/scale"
	"millwright/observe"
)

type (
	onSet        = func(*v1alpha1.MachineSet)
	onDeployment = func(*v1alpha1.MachineDeployment)
)

// fact returns a field of a struct by its name; that of a nested one as Outer.Inner.
func fact(of any, name string) any {
	v := reflect.ValueOf(of)
	for part := range strings.SplitSeq(name, ".") {
		v = v.FieldByName(part)
	}
	return v.Interface()
}

// facts lists the fields of a struct as fact names them.
func facts(of reflect.Type, prefix string) (names []string) {
	for f := range of.Fields() {
		if f.Type.Kind() == reflect.Struct && f.Type != reflect.TypeFor[time.Time]() {
			names = append(names, facts(f.Type, prefix+f.Name+".")...)
			continue
		}
		names = append(names, prefix+f.Name)
	}
	return names
}

// noteSet sets an annotation of a set.
func noteSet(key, value string) onSet {
	return func(s *v1alpha1.MachineSet) { metav1.SetMetaDataAnnotation(&s.ObjectMeta, key, value) }
}

func labelSet(key, value string) onSet {
	return func(s *v1alpha1.MachineSet) { metav1.SetMetaDataLabel(&s.ObjectMeta, key, value) }
}

func remedied(change func(*v1alpha1.MachineSetRemediation)) onSet {
	return func(s *v1alpha1.MachineSet) {
		s.Spec.Replicas, s.Spec.Remediation = 5, &v1alpha1.MachineSetRemediation{}
		change(s.Spec.Remediation)
	}
}

func atMost(n intstr.IntOrString) onSet {
	return remedied(func(r *v1alpha1.MachineSetRemediation) { r.MaxInFlight = &n })
}

func rolledOut(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "new" }

// aroundD is what stands around a set below deployment d.
func aroundD(change ...onDeployment) observe.AroundSet {
	return observe.AroundSet{Deployment: deployment("d", change...)}
}

func orphans(machines ...*v1alpha1.Machine) observe.AroundSet {
	return observe.AroundSet{Orphans: machines}
}

func releasedBy(uid string) func(*v1alpha1.Machine) { return noted(v1alpha1.AnnotationReleasedBy, uid) }

// Every fact of a set that decide/scale asks for, and how it differs from that of a set about which nothing is said.
func TestScaleObserved(t *testing.T) {
	pausing := func(d *v1alpha1.MachineDeployment) {
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, v1alpha1.AnnotationPaused, "")
	}
	freezing := func(d *v1alpha1.MachineDeployment) {
		metav1.SetMetaDataLabel(&d.ObjectMeta, v1alpha1.LabelFreeze, "True")
	}
	ending := func(d *v1alpha1.MachineDeployment) {
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, v1alpha1.AnnotationUnfreeze, "")
	}
	selecting := func(selector *metav1.LabelSelector) onSet {
		return func(s *v1alpha1.MachineSet) { s.Spec.Selector = selector }
	}
	generations := func(s *v1alpha1.MachineSet) {
		s.Status.FailedGenerations = &v1alpha1.FailedGenerations{Count: 2, LastFailedAt: ago(3)}
	}
	const invalid = "the selector does not match the labels of the template"
	proveObserved(t, []setRow{
		{fact: "Now", want: noon},
		{fact: "Set", want: "s"},
		{fact: "Replicas", set: func(s *v1alpha1.MachineSet) { s.Spec.Replicas = 3 }, want: 3},
		{fact: "Order", set: func(s *v1alpha1.MachineSet) { s.Spec.DeletionOrder = v1alpha1.DeletionOrderOldest }, want: scale.Oldest},
		{fact: "Order", set: func(s *v1alpha1.MachineSet) { s.Spec.DeletionOrder = v1alpha1.DeletionOrderNewest }, want: scale.Newest},
		{fact: "Order", set: func(s *v1alpha1.MachineSet) { s.Spec.DeletionOrder = v1alpha1.DeletionOrderRandom }, want: scale.Random},
		{fact: "Keep", set: func(s *v1alpha1.MachineSet) { s.Spec.AutoPreserveFailedMachineMax = 2 }, want: 2},
		{name: "in seconds", fact: "MinReady", set: func(s *v1alpha1.MachineSet) { s.Spec.MinReadySeconds = 90 }, want: 90 * time.Second},
		{fact: "Deleting", set: goingSet, want: true},
		{fact: "Seed", want: uint64(7)},
		{name: "unreadable", fact: "Invalid", set: selecting(unreadable()), want: `the selector cannot be read: "Nonsense" is not a valid label selector operator`},
		{name: "of other labels", fact: "Invalid", set: selecting(&metav1.LabelSelector{MatchLabels: map[string]string{"app": "api"}}), want: invalid},
		{name: "none at all", fact: "Invalid", set: selecting(nil), want: invalid},
		{name: "an empty one is not invalid", fact: "Invalid", set: selecting(&metav1.LabelSelector{}), want: ""},
		{name: "an empty one", fact: "SelectsAll", set: selecting(&metav1.LabelSelector{}), want: true},
		{name: "one that cannot be read", fact: "SelectsAll", set: selecting(unreadable()), want: false},
		{name: "none at all", fact: "SelectsAll", set: selecting(nil), want: false},
		{name: "of all of them whether they match", fact: "Orphans", around: orphans(machine("a", version("9")), machine("b", labelled("api"), goingMachine)), want: []scale.Orphan{
			{Name: "a", UID: "uid-a", Version: "9", Matches: true}, {Name: "b", UID: "uid-b", Deleting: true},
		}},
		{name: "an unreadable selector matches none", fact: "Orphans", set: selecting(unreadable()), around: orphans(machine("a")), want: []scale.Orphan{{Name: "a", UID: "uid-a"}}},
		{name: "by this set", fact: "Released", around: orphans(machine("a", releasedBy("uid-s")), machine("b", releasedBy("uid-s"), labelled("api"))), want: 2},
		{name: "by another, by nobody, or going", fact: "Released", around: orphans(machine("a", releasedBy("uid-x")), machine("b"), machine("c", releasedBy("uid-s"), goingMachine)), want: 0},
		{fact: "Paused", set: noteSet(v1alpha1.AnnotationPaused, ""), want: true},
		{name: "its deployment", fact: "Paused", around: aroundD(pausing), want: false},
		{fact: "OwnerPaused", around: aroundD(pausing), want: "MachineDeployment"},
		{name: "a deployment that is not paused", fact: "OwnerPaused", set: noteSet(v1alpha1.AnnotationPaused, ""), around: aroundD(), want: ""},
		{fact: "Frozen", set: labelSet(v1alpha1.LabelFreeze, "True"), want: true},
		{name: "another value", fact: "Frozen", set: labelSet(v1alpha1.LabelFreeze, "true"), want: false},
		{name: "ended", fact: "Frozen", set: both(labelSet(v1alpha1.LabelFreeze, "True"), noteSet(v1alpha1.AnnotationUnfreeze, "")), want: false},
		{name: "nothing to end", fact: "Frozen", set: noteSet(v1alpha1.AnnotationUnfreeze, ""), want: false},
		{name: "I8: its deployment", fact: "Frozen", around: aroundD(freezing), want: true},
		{name: "I8: its deployment's freeze ended", fact: "Frozen", around: aroundD(freezing, ending), want: false},
		{name: "I8: only that of its deployment ended", fact: "Frozen", set: labelSet(v1alpha1.LabelFreeze, "True"), around: aroundD(freezing, ending), want: true},
		{name: "a deployment that is not frozen", fact: "Frozen", around: aroundD(), want: false},
		{fact: "NoScaleUp", set: labelSet(v1alpha1.LabelScaleUpDisabled, "true"), want: true},
		{name: "by its presence", fact: "NoScaleUp", set: labelSet(v1alpha1.LabelScaleUpDisabled, ""), want: true},
		{name: "when the size changed", fact: "Scaled", set: noteSet(v1alpha1.AnnotationLastScalerChange, "2026-01-01T11:00:00Z"), want: noon.Add(-time.Hour)},
		{name: "no time", fact: "Scaled", set: noteSet(v1alpha1.AnnotationLastScalerChange, "yesterday"), want: time.Time{}},
		{fact: "Remediation.Limited", set: atMost(intstr.FromInt32(2)), want: true},
		{name: "nothing said of it", fact: "Remediation.Limited", set: remedied(func(*v1alpha1.MachineSetRemediation) {}), want: false},
		{fact: "Remediation.MaxInFlight", set: atMost(intstr.FromInt32(2)), want: 2},
		{name: "rounded up", fact: "Remediation.MaxInFlight", set: atMost(intstr.FromString("21%")), want: 2},
		{name: "neither number nor percentage", fact: "Remediation.MaxInFlight", set: atMost(intstr.FromString("many")), want: 0},
		{name: "which is a limit, too", fact: "Remediation.Limited", set: atMost(intstr.FromString("many")), want: true},
		{name: "its default", fact: "Remediation.Backoff", want: time.Minute},
		{fact: "Remediation.Backoff", set: remedied(func(r *v1alpha1.MachineSetRemediation) { r.Backoff = &metav1.Duration{Duration: time.Second} }), want: time.Second},
		{name: "none", fact: "Remediation.Backoff", set: remedied(func(r *v1alpha1.MachineSetRemediation) { r.Backoff = &metav1.Duration{} }), want: time.Duration(0)},
		{name: "the deployment has one", fact: "Remediation.Backoff", set: ofDeployment, around: aroundD(), want: time.Duration(0)},
		{name: "also one that is not there yet", fact: "Remediation.Backoff", set: ofDeployment, want: time.Duration(0)},
		{name: "its default", fact: "Remediation.MaxBackoff", want: time.Hour},
		{fact: "Remediation.MaxBackoff", set: remedied(func(r *v1alpha1.MachineSetRemediation) { r.MaxBackoff = &metav1.Duration{Duration: time.Minute} }), want: time.Minute},
		{fact: "Remediation.Outdated", around: aroundD(rolledOut), want: true},
		{name: "the current set", fact: "Remediation.Outdated", around: aroundD(), want: false},
		{fact: "Generations.Failed", set: generations, want: 2},
		{fact: "Generations.Last", set: generations, want: ago(3).Time},
		{fact: "Preflight", around: observe.AroundSet{Preflight: []preflight.Failure{{Check: "All", Why: "no"}}}, want: []preflight.Failure{{Check: "All", Why: "no"}}},
		{fact: "Peak", set: func(s *v1alpha1.MachineSet) { s.Status.PeakReplicas = 4 }, want: 4},
		{fact: "Seen", set: func(s *v1alpha1.MachineSet) { s.Status.ObservedReplicas = 4 }, want: 4},
		{fact: "Missing", around: observe.AroundSet{Missing: []string{"MachineClass"}}, want: []string{"MachineClass"}},
	}, map[string]string{
		"Members":              "TestObservedMember",
		"Taken":                "the names of members and orphans are all that is known",
		"ListFailed":           "an activity that cannot read fails",
		"LastFailure.Deleting": "the run knows what it was refused",
		"LastFailure.Message":  "the run knows what it was refused",
	})
}

func both[T any](changes ...func(T)) func(T) {
	return func(o T) {
		for _, change := range changes {
			change(o)
		}
	}
}

// setRow is one fact of a set, by the set and what stands around it.
type setRow struct {
	name   string
	fact   string
	set    onSet
	around observe.AroundSet
	want   any
}

// proveObserved shows each fact, and that none is forgotten: one of its rows differs from that of a set of which nothing is said.
func proveObserved(t *testing.T, rows []setRow, never map[string]string) {
	missing := map[string]bool{}
	for _, name := range facts(reflect.TypeFor[scale.Observed](), "") {
		missing[name] = never[name] == ""
	}
	plain := observe.ScaleObserved(set("plain"), observe.AroundSet{}, time.Time{}, 0)
	for _, row := range rows {
		name := strings.TrimPrefix(row.name+", "+row.fact, ", ")
		t.Run(name, func(t *testing.T) {
			s := set("s")
			if row.set != nil {
				row.set(s)
			}
			assert.Equal(t, row.want, fact(observe.ScaleObserved(s, row.around, noon, 7), row.fact))
		})
		if !assert.ObjectsAreEqual(row.want, fact(plain, row.fact)) || strings.HasPrefix(row.name, "its default") {
			delete(missing, row.fact)
		}
	}
	for name, lacks := range missing {
		assert.False(t, lacks, "fact %s has no row that shows it", name)
	}
}
