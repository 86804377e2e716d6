package explain

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/explain"
	"millwright/starter/clitest"
)

// newBlockedMachine returns a machine whose provider has no capacity; its status has the sentence that the workers
// write.
func newBlockedMachine() *v1alpha1.Machine {
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web-a", UID: "uid-m",
		OwnerReferences: []metav1.OwnerReference{{Kind: "MachineSet", Name: "web-1", UID: "uid-x", Controller: new(true)}},
	}}
	m.Spec.Class.Name = "small"
	m.Status.CurrentOperation = &v1alpha1.Operation{
		WorkflowID: "garden/machine/shop/web-a/uid-m",
		Step:       vocabulary.StepCreateInstance,
		Cause:      "no room",
		BlockedBy:  []string{"ResourceExhausted"},
		Since:      metav1.NewTime(clitest.LastChangeTime),
		Deadline:   new(metav1.NewTime(clitest.Now.Add(time.Hour))),
		WaitsFor:   "no room (since 13:51:07 UTC); it is tried again: ask the cloud for more, or scale down; if its instance is not ready, it is replaced at 15:06:07 UTC; `millwright explain machine/web-a -n shop`",
	}
	return m
}

// addPendingActivities adds an open activity, and an activity whose last attempt has failed.
func addPendingActivities(f *clitest.FakeTemporal) {
	f.WorkflowID, f.Status = "garden/machine/shop/web-a/uid-m", enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
	f.PendingActivities = []*workflowpb.PendingActivityInfo{
		{
			ActivityId:      "create-instance",
			Attempt:         1,
			State:           enumspb.PENDING_ACTIVITY_STATE_STARTED,
			LastStartedTime: timestamppb.New(clitest.LastChangeTime),
		},
		{
			ActivityId:              "report",
			Attempt:                 3,
			State:                   enumspb.PENDING_ACTIVITY_STATE_SCHEDULED,
			NextAttemptScheduleTime: timestamppb.New(clitest.Now.Add(time.Minute)),
			LastFailure:             &failurepb.Failure{Message: "no\nroom"},
		},
	}
}

func TestExplainPrintsAMachineAsYAML(t *testing.T) {
	w := clitest.NewFakeBackend(
		newBlockedMachine(),
		&v1alpha1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "small"}, Provider: "aws"},
	)
	addPendingActivities(w.Temporal)
	w.Temporal.UnpolledQueues = []string{"garden/machines"}
	out, err := w.Run(t.Context(), Command(w.Environment()), "mc/shop/web-a", "-o", "yaml")
	require.NoError(t, err)
	assert.Equal(t, "blocked: true\n"+
		"blockedBy:\n- ResourceExhausted\n"+
		"calls:\n- attempt: 1\n  name: create-instance\n  open: true\n  since: \"2026-11-21T13:51:07Z\"\n"+
		"- attempt: 3\n  failure: no room\n  name: report\n  next: \"2026-11-21T14:07:07Z\"\n  open: false\n"+
		"command: millwright explain machine/web-a -n shop\ncommands:\n- millwright explain machine/web-a -n shop\n"+
		"deadline: \"2026-11-21T15:06:07Z\"\nkind: machine\nname: web-a\nnamespace: shop\nnext: 'it is tried again: ask the cloud for more, or scale down; if its instance is\n  not ready, it is replaced'\n"+
		"notes:\n- 'No worker polls queue garden/machines: nothing moves until a worker runs.'\n"+
		"sentence: 'no room (since 13:51:07 UTC); it is tried again: ask the cloud for more,\n  or scale down; if its instance is not ready, it is replaced at 15:06:07 UTC; `millwright\n  explain machine/web-a -n shop`'\n"+
		"since: \"2026-11-21T13:51:07Z\"\nstep: create-instance\nunseen: false\nwaits: true\nwhat: waits for its instance\nwhy: no room\n"+
		"workflow: garden/machine/shop/web-a/uid-m\n", out)
}

func TestExplainPrintsADeploymentAsJSON(t *testing.T) {
	objects := append([]runtime.Object{newBlockedMachine()}, newPoolObjects()...)
	w := clitest.NewFakeBackend(append(objects[:3:3], objects[4:]...)...) // web-a is the blocked machine
	out, err := w.Run(t.Context(), Command(w.Environment()), "mcd/shop/web", "-o", "json")
	require.NoError(t, err)
	var a explanation
	require.NoError(t, yaml.UnmarshalStrict([]byte(out), &a))
	assert.Equal(t, "1 of 2 machines waits for its instance", a.Sentence)
	assert.Equal(t, []any{true, true, true, int64(2)}, []any{a.IsWaiting, a.IsBlocked, a.IsStatusOutdated, a.Generation})
	assert.Equal(t, &counts{Updated: new(int32(0)), Machines: 3, Waiting: 2, Blocked: 2}, a.Counts)
	require.Len(t, a.Machines, 2)
	assert.Equal(t, waitingMachine{
		"web-a",
		"new",
		step{
			WorkflowID: "garden/machine/shop/web-a/uid-m",
			StepName:   "create-instance",
			Goal:       "waits for its instance",
			Why:        "no room",
			BlockedBy:  []string{"ResourceExhausted"},
			Since:      clitest.LastChangeTime,
			Next:       "it is tried again: ask the cloud for more, or scale down; if its instance is not ready, it is replaced",
			Deadline:   clitest.Now.Add(time.Hour),
			Command:    "millwright explain machine/web-a -n shop",
		},
	}, a.Machines[0])
}

// The object waits for nothing, and Temporal does not answer.
func TestExplainPrintsAnIdleObjectAsJSON(t *testing.T) {
	w := clitest.NewFakeBackend(newPoolObjects()...)
	w.Temporal.Err = errors.New("connection refused")
	out, err := w.Run(t.Context(), Command(w.Environment()), "mc/shop/web-c", "-o", "json", "--cluster-name", "garden")
	require.NoError(t, err)
	var fields map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &fields))
	require.Len(t, fields["notes"], 1)
	delete(fields, "notes")
	assert.Equal(t, map[string]any{
		"kind":      "machine",
		"namespace": "shop",
		"name":      "web-c",
		"sentence":  "phase new",
		"waits":     false,
		"blocked":   false,
		"unseen":    false,
	}, fields)
	_, err = w.Run(t.Context(), Command(w.Environment()), "mc/shop/web-c", "-o", "name")
	require.ErrorContains(t, err, "the formats are [text json yaml]")
}

// CommandsInSentence finds the commands at the end of a sentence of decide/explain.
func TestCommandsInSentence(t *testing.T) {
	first := explain.WaitState{
		Cause:         "`x` is full",
		Since:         clitest.LastChangeTime,
		Command:       "kubectl edit pdb -n shop web",
		NextEvent:     explain.Event{PhraseForms: explain.PhraseForms{Singular: "the pods still on its node are deleted"}},
		NextEventTime: clitest.Now,
	}
	second := explain.WaitState{Cause: "nobody approves", Command: "millwright rollout approve shop/web --reason …"}
	sentence := first.Sentence(clitest.Now) + ". " + second.Sentence(clitest.Now) + ". " +
		explain.WaitState{Cause: "it takes time"}.Sentence(clitest.Now)
	assert.Equal(t, []string{first.Command, second.Command}, CommandsInSentence(sentence))
	assert.Empty(t, CommandsInSentence("it takes time"))
}
