package history

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	namespacepb "go.temporal.io/api/namespace/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"millwright/api/v1alpha1"
	"millwright/observe/capi/capitest"
	"millwright/starter/clitest"
	"millwright/starter/kubecli"
)

// fakeTemporal lists runs, and records the request.
type fakeTemporal struct {
	client.Client

	runs []*workflowpb.WorkflowExecutionInfo
	next []byte // token of the next page
	err  error
	sent *workflowservice.ListWorkflowExecutionsRequest
}

func (f *fakeTemporal) Close() {}

func (f *fakeTemporal) WorkflowService() workflowservice.WorkflowServiceClient {
	return workflowService{}
}

type workflowService struct {
	workflowservice.WorkflowServiceClient
}

func (f *fakeTemporal) ListWorkflow(
	_ context.Context,
	in *workflowservice.ListWorkflowExecutionsRequest,
) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	f.sent = in
	return &workflowservice.ListWorkflowExecutionsResponse{Executions: f.runs, NextPageToken: f.next}, f.err
}

func (workflowService) DescribeNamespace(
	context.Context,
	*workflowservice.DescribeNamespaceRequest,
	...grpc.CallOption,
) (*workflowservice.DescribeNamespaceResponse, error) {
	return &workflowservice.DescribeNamespaceResponse{Config: &namespacepb.NamespaceConfig{
		WorkflowExecutionRetentionTtl: durationpb.New(7 * 24 * time.Hour),
	}}, nil
}

func newInfo(
	kind, id string,
	status enumspb.WorkflowExecutionStatus,
	begin, end time.Time,
	values map[string]any,
) *workflowpb.WorkflowExecutionInfo {
	info := &workflowpb.WorkflowExecutionInfo{
		Execution:        &commonpb.WorkflowExecution{WorkflowId: id, RunId: "run-" + kind},
		Type:             &commonpb.WorkflowType{Name: kind},
		Status:           status,
		StartTime:        timestamppb.New(begin),
		SearchAttributes: &commonpb.SearchAttributes{IndexedFields: map[string]*commonpb.Payload{}},
	}
	if !end.IsZero() {
		info.CloseTime = timestamppb.New(end)
	}
	for name, value := range values {
		payload, err := converter.GetDefaultDataConverter().ToPayload(value)
		if err != nil {
			panic(err)
		}
		info.SearchAttributes.IndexedFields[name] = payload
	}
	return info
}

// newRuns returns an open drain, and two closed runs of a machine in the order in which Temporal lists them.
func newRuns() []*workflowpb.WorkflowExecutionInfo {
	ago := func(minutes time.Duration) time.Time { return clitest.Now.Add(-minutes * time.Minute) }
	return []*workflowpb.WorkflowExecutionInfo{
		newInfo(
			"Drain",
			"garden/drain/shop/web-1/u",
			enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING,
			ago(10),
			time.Time{},
			map[string]any{
				"Step": "EvictPods", "BlockedBy": []string{"PodDisruptionBudget shop/web"},
			},
		),
		newInfo(
			"Machine",
			"garden/machine/shop/web-1/u",
			enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED,
			ago(120),
			ago(115),
			map[string]any{"Phase": "Running", "Step": "Join"},
		),
		newInfo("Machine", "garden/machine/shop/web-1/u", enumspb.WORKFLOW_EXECUTION_STATUS_FAILED, ago(60), ago(59), nil),
	}
}

func newBackend() *clitest.FakeBackend {
	w := clitest.NewFakeBackend(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-2"}})
	w.ClusterClient = kubefake.NewClientset(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: v1alpha1.LeaseWorkers,
		Annotations: map[string]string{v1alpha1.AnnotationInstallation: "garden"},
	}})
	return w
}

func runHistory(t *testing.T, temporal *fakeTemporal, args ...string) (string, error) {
	t.Helper()
	w := newBackend()
	e := w.Environment()
	e.DialTemporal = func(kubecli.TemporalFlags) (client.Client, error) { return temporal, nil }
	return w.Run(t.Context(), Command(e), args...)
}

func TestHistoryListsRunsOfAMachineThatIsGone(t *testing.T) {
	temporal := &fakeTemporal{runs: newRuns()}
	out, err := runHistory(t, temporal, "shop/web-1")
	require.NoError(t, err)
	const page = "http://127.0.0.1:8233/namespaces/millwright/workflows/garden%2F"
	assert.Equal(
		t,
		"KIND      STARTED        DURATION   OUTCOME                                                            PAGE\n"+
			"Drain     13:56:07 UTC   10m        Running: step EvictPods, blocked by PodDisruptionBudget shop/web   "+page+"drain%2Fshop%2Fweb-1%2Fu/run-Drain/user-metadata\n"+
			"Machine   13:06:07 UTC   60s        Failed                                                             "+page+"machine%2Fshop%2Fweb-1%2Fu/run-Machine/user-metadata\n"+
			"Machine   12:06:07 UTC   5m         Completed: phase Running                                           "+page+"machine%2Fshop%2Fweb-1%2Fu/run-Machine/user-metadata\n",
		out,
	)
	assert.Equal(
		t,
		`MachineNamespace="shop" AND Machine="web-1" AND WorkflowId STARTS_WITH "garden/"`,
		temporal.sent.GetQuery(),
	)
	assert.EqualValues(t, 50, temporal.sent.GetPageSize())
	assert.Empty(t, temporal.sent.GetNextPageToken())
}

func TestHistoryContinues(t *testing.T) {
	temporal := &fakeTemporal{runs: newRuns()[:1], next: []byte("\x01 next?")}
	out, err := runHistory(t, temporal, "mc", "web-1", "-n", "shop", "--limit", "1", "--cluster-name", "field")
	require.NoError(t, err)
	assert.Contains(t, out, "\nOlder runs: millwright history shop/web-1 --limit 1 --continue ASBuZXh0Pw\n")
	assert.Contains(t, temporal.sent.GetQuery(), `STARTS_WITH "field/"`)
	assert.EqualValues(t, 1, temporal.sent.GetPageSize())
	later := &fakeTemporal{}
	out, err = runHistory(t, later, "shop/web-1", "--continue", "ASBuZXh0Pw")
	require.NoError(t, err)
	assert.Equal(t, "\x01 next?", string(later.sent.GetNextPageToken()))
	assert.Equal(t, "there are no older runs\n", out)
	_, err = runHistory(t, later, "shop/web-1", "--continue", "?")
	require.ErrorContains(t, err, "--continue: this is not the value of a last line")
	for _, limit := range []string{"0", "1001"} {
		_, err = runHistory(t, later, "shop/web-1", "--limit", limit)
		require.EqualError(t, err, "--limit "+limit+" is not between 1 and 1000")
	}
}

func TestHistoryAsJSON(t *testing.T) {
	out, err := runHistory(t, &fakeTemporal{runs: newRuns(), next: []byte("n")}, "shop/web-1", "-o", "json")
	require.NoError(t, err)
	var got runList
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	assert.Equal(t, "bg", got.Continue)
	require.Len(t, got.Items, 3)
	assert.Equal(t, []string{"PodDisruptionBudget shop/web"}, got.Items[0].BlockedBy)
	assert.Equal(t, "garden/drain/shop/web-1/u", got.Items[0].WorkflowID)
	assert.True(t, got.Items[0].End.IsZero())
	out, err = runHistory(t, &fakeTemporal{}, "shop/web-2", "-o", "json")
	require.NoError(t, err)
	assert.JSONEq(t, `{"items":[]}`, out)
	out, err = runHistory(t, &fakeTemporal{runs: newRuns(), next: []byte("n")}, "shop/web-1", "-o", "name")
	require.NoError(t, err)
	assert.Equal(t, "garden/drain/shop/web-1/u\ngarden/machine/shop/web-1/u\ngarden/machine/shop/web-1/u\n", out)
}

func TestHistoryWithoutRuns(t *testing.T) {
	out, err := runHistory(t, &fakeTemporal{}, "shop/web-2")
	require.NoError(t, err)
	assert.Equal(
		t,
		"Temporal has no run of machine shop/web-2: it is at rest, and its closed runs are not kept any more\n",
		out,
	)
	_, err = runHistory(t, &fakeTemporal{}, "shop/wbe-2")
	require.EqualError(
		t,
		err,
		"there is no machine shop/wbe-2, and Temporal has no run of one; it keeps closed runs for 168h; did you mean web-2?",
	)
	_, err = runHistory(t, &fakeTemporal{err: errors.New("connection\n refused")}, "shop/web-2")
	require.EqualError(t, err, "list the runs in Temporal at 127.0.0.1:7233: connection refused")
}

func TestHistoryOfAMachineOfClusterAPIAtRest(t *testing.T) {
	w := newBackend()
	set := capitest.NewSet("s", 1)
	w.ClusterAPI = capitest.NewFakeServer(set, capitest.NewMachine("m-1", set))
	e := w.Environment()
	e.DialTemporal = func(kubecli.TemporalFlags) (client.Client, error) { return &fakeTemporal{}, nil }
	out, err := w.Run(t.Context(), Command(e), "machine.cluster.x-k8s.io", "shop/m-1")
	require.NoError(t, err)
	assert.Contains(t, out, "Temporal has no run of machine shop/m-1")
	_, err = w.Run(t.Context(), Command(e), "shop/m-2")
	require.ErrorContains(t, err, "did you mean m-1?")
}

func TestHistoryNeedsNoCluster(t *testing.T) {
	temporal := &fakeTemporal{runs: newRuns()}
	e := newBackend().Environment()
	e.DialTemporal = func(kubecli.TemporalFlags) (client.Client, error) { return temporal, nil }
	e.NewClients = func(kubecli.ClusterAccess) (kubecli.Clients, error) {
		return kubecli.Clients{}, errors.New("no kubeconfig")
	}
	e.ContextNamespace = func(kubecli.ClusterAccess) (string, error) { return "", errors.New("no kubeconfig") }
	out, err := newBackend().Run(t.Context(), Command(e), "shop/web-1")
	require.NoError(t, err)
	assert.Contains(t, out, "Drain")
	assert.Equal(t, `MachineNamespace="shop" AND Machine="web-1"`, temporal.sent.GetQuery(), "of all installations")
	_, err = newBackend().Run(t.Context(), Command(e), "web-1")
	require.EqualError(t, err, "no kubeconfig")
}
