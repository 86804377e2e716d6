package providers

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	commonpb "go.temporal.io/api/common/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/cloud"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/provider"
	"millwright/starter/clitest"
	"millwright/starter/printers"
	"millwright/workflows/check"
	"millwright/workflows/run"
)

func TestPrintCheckResult(t *testing.T) {
	in := check.Input{Class: kube.Ref{Namespace: "shop", Name: "small"}, Provider: "incus"}
	for name, row := range map[string]struct {
		result    check.Result
		out, fail string
	}{
		"all is well": {
			result: check.Result{CheckResult: cloud.CheckResult{Instances: 1, Traits: provider.Traits{Idempotency: provider.ByName, Window: time.Second}}},
			out: "provider incus can use class shop/small: the cloud lists 1 instance\n" +
				"creations are made once by: name; reads show everything after 1s; requests expire: false; instances carry UIDs: true\n",
		},
		"no idempotency": {
			result: check.Result{CheckResult: cloud.CheckResult{Traits: provider.Traits{Named: true, Expires: true}}},
			out: "provider incus can use class shop/small: the cloud lists 0 instances\n" +
				"creations are made once by: search; reads show everything after 0s; requests expire: true; instances carry UIDs: false\n",
		},
		"a problem": {
			result: check.Result{CheckResult: cloud.CheckResult{Problem: &kube.Problem{Reason: "PermissionDenied", Message: "not authorized"}}},
			fail:   "provider incus cannot use class shop/small: not authorized (PermissionDenied)",
		},
		"no worker": {
			result: check.Result{NoWorker: true, Failure: "no worker has taken the question within 20 seconds"},
			fail:   "provider incus: no worker has taken the question within 20 seconds: does one run with --queues=provider-incus?",
		},
		"no answer": {result: check.Result{Failure: "connection refused"}, fail: "provider incus: connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := printCheckResult(&out, in, row.result)
			assert.Equal(t, row.out, out.String())
			if row.fail == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, row.fail)
		})
	}
}

func TestCheckResultAsJSON(t *testing.T) {
	in := check.Input{Class: kube.Ref{Namespace: "shop", Name: "small"}, Provider: "incus"}
	var out bytes.Buffer
	require.NoError(
		t,
		writeCheckResult(&out, printers.OutputJSON, in, check.Result{CheckResult: cloud.CheckResult{Instances: 3}}),
	)
	assert.JSONEq(t, `{"namespace":"shop","class":"small","provider":"incus","usable":true,"instances":3}`, out.String())
	out.Reset()
	denied := check.Result{
		CheckResult: cloud.CheckResult{Problem: &kube.Problem{Reason: "PermissionDenied", Message: "not authorized"}},
	}
	require.ErrorContains(t, writeCheckResult(&out, printers.OutputJSON, in, denied), "cannot use class shop/small")
	assert.JSONEq(
		t,
		`{"namespace":"shop","class":"small","provider":"incus","usable":false,"message":"not authorized","reason":"PermissionDenied","instances":0}`,
		out.String(),
	)
	out.Reset()
	require.Error(
		t,
		writeCheckResult(&out, printers.OutputYAML, in, check.Result{NoWorker: true, Failure: "nobody answers"}),
	)
	assert.Contains(t, out.String(), "message: nobody answers\n")
	assert.Contains(t, out.String(), "noWorker: true\n")
}

func TestProviderListWithoutClassesNamesTheNamespace(t *testing.T) {
	w := clitest.NewFakeBackend(&v1alpha1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "small"}})
	out, err := w.Run(t.Context(), Command(w.Environment()), "list", "--cluster-name", "prod")
	require.NoError(t, err)
	assert.Equal(t, "there is no MachineClass in namespace default; 1 elsewhere: -A\n", out)
}

func TestCheckTimesOutWithoutAWorker(t *testing.T) {
	class := &v1alpha1.MachineClass{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "small", UID: "u"},
		Provider:   "virtual",
	}
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewFakeBackend(class)
		w.Temporal.WorkflowID = run.Installation("prod").ReservationWorkflowID()
		_, err := w.Run(t.Context(), Command(w.Environment()), "check", "small", "-n", "shop", "--cluster-name", "prod")
		require.EqualError(
			t,
			err,
			"no worker of prod has carried out the check within 1m30s: does one run, and with the payload keys of this command? `millwright doctor`",
		)
		require.Contains(t, w.Temporal.TerminatedID, "shop/small")
	})
}

// If the command cannot decrypt the record of the installation, check starts no workflow, because the workers could not
// decrypt its payloads, or the command could not decrypt its result.
func TestCheckWithoutPayloadKeysStartsNoWorkflow(t *testing.T) {
	class := &v1alpha1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "small"}, Provider: "virtual"}
	w := clitest.NewFakeBackend(class)
	w.Temporal.WorkflowID = run.Installation("prod").ReservationWorkflowID()
	w.Temporal.Memo = &commonpb.Memo{Fields: map[string]*commonpb.Payload{"controlCluster": {
		Metadata: map[string][]byte{"encoding": []byte("binary/encrypted"), "encryption-key-id": []byte("2026-11")},
	}}}
	_, err := w.Run(t.Context(), Command(w.Environment()), "check", "small", "-n", "shop", "--cluster-name", "prod")
	require.ErrorContains(
		t,
		err,
		`find installation prod in Temporal: read whose installation it is: a payload is encrypted with the key "2026-11", which is not in`,
	)
	require.Empty(t, w.Temporal.TerminatedID, "nothing was started")
}

// Each name that `provider list -o name` prints is a valid argument of check without --namespace.
func TestListedClassNamesAreValidCheckArguments(t *testing.T) {
	w := clitest.NewFakeBackend(
		&v1alpha1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "small"}, Provider: "virtual"},
	)
	out, err := w.Run(t.Context(), Command(w.Environment()), "list", "-A", "-o", "name", "--cluster-name", "prod")
	require.NoError(t, err)
	require.Equal(t, "machineclass/shop/small\n", out)
	w.Temporal.Err = errors.New("connection refused")
	_, err = w.Run(t.Context(), Command(w.Environment()), "check", "machineclass/shop/small", "--cluster-name", "prod")
	require.ErrorContains(t, err, "find installation prod in Temporal: connection refused", "the class is found")
}

func TestCountMachinesThatWaitForTheirProvider(t *testing.T) {
	class := &v1alpha1.MachineClass{}
	class.Namespace, class.Name = "shop", "small"
	machine := func(namespace, of, code string, state v1alpha1.MachineState) v1alpha1.Machine {
		m := v1alpha1.Machine{}
		m.Namespace = namespace
		m.Spec.Class.Name = of
		m.Status.LastOperation.State = state
		m.Status.LastOperation.ErrorCode = code
		return m
	}
	total, waiting := countMachines(class, []v1alpha1.Machine{
		machine(
			"shop",
			"small",
			"",
			v1alpha1.MachineStateSuccessful,
		),
		machine("shop", "small", "ResourceExhausted", v1alpha1.MachineStateFailed),
		machine(
			"shop",
			"small",
			"ResourceExhausted",
			v1alpha1.MachineStateFailed,
		),
		machine("shop", "small", "", v1alpha1.MachineStateFailed),
		machine(
			"shop",
			"other",
			"Unknown",
			v1alpha1.MachineStateFailed,
		),
		machine("other", "small", "Unknown", v1alpha1.MachineStateFailed),
	}, true, clitest.Now)
	assert.Equal(t, 4, total)
	assert.Equal(t, "3 (1 without a code, 2 ResourceExhausted)", waiting)

	creating := machine("shop", "small", "", v1alpha1.MachineStateProcessing)
	creating.Status.CurrentOperation = &v1alpha1.Operation{
		Step:  vocabulary.StepCreateInstance,
		Since: metav1.NewTime(clitest.Now),
	}
	joining := *creating.DeepCopy()
	joining.Status.CurrentOperation.Step = vocabulary.StepAwaitNode
	refused := *creating.DeepCopy()
	refused.Status.CurrentOperation.BlockedBy = []string{"Unauthenticated"}
	_, waiting = countMachines(class, []v1alpha1.Machine{creating, joining, refused}, true, clitest.Now)
	assert.Equal(t, "1 (1 Unauthenticated)", waiting)
	_, waiting = countMachines(class, []v1alpha1.Machine{creating, joining, refused}, false, clitest.Now)
	assert.Equal(t, "2 (2 NoWorker)", waiting, "no worker serves the provider, and no status says so yet")
}

func TestCheckNeedsAnInstallationName(t *testing.T) {
	w := clitest.NewFakeBackend()
	_, err := w.Run(t.Context(), Command(w.Environment()), "list", "--cluster-name", "")
	require.ErrorContains(t, err, "--cluster-name is needed")
}
