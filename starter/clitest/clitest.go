// Package clitest contains fakes that replace the cluster and Temporal in the tests of millwright's commands.
package clitest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	clienttesting "k8s.io/client-go/testing"

	"millwright/api/generated/clientset/versioned/fake"
	"millwright/observe/capi/capitest"
	"millwright/starter/kubecli"
	"millwright/workflows/run"
)

// Times that the tests of all commands use.
var (
	Now            = time.Date(2026, 11, 21, 14, 6, 7, 0, time.UTC) // the commands' clock
	LastChangeTime = Now.Add(-15 * time.Minute)                     // time of the objects' last change
)

// FakeTemporal answers with one open workflow, or with an error.
type FakeTemporal struct {
	client.Client

	WorkflowID        string // ID of the open workflow; any other ID is not found
	RunID             string // ID of the workflow's newest run
	Memo              *commonpb.Memo
	Status            enumspb.WorkflowExecutionStatus
	PendingActivities []*workflowpb.PendingActivityInfo
	Err               error // returned by every request except ExecuteWorkflow, TerminateWorkflow and QueryWorkflow
	QueryAnswer       any   // answer to the query
	QueryErr          error
	IsClosed          bool
	TerminatedID      string   // ID of the workflow that was terminated
	UnpolledQueues    []string // queues that no worker polls; one worker polls every other queue

	UnregisteredAttributes []string // names of the search attributes that are missing in the namespace
}

// ExecuteWorkflow returns a run that never completes, because there is no worker.
func (f *FakeTemporal) ExecuteWorkflow(
	_ context.Context,
	options client.StartWorkflowOptions,
	_ any,
	_ ...any,
) (client.WorkflowRun, error) {
	return openRun{id: options.ID}, nil
}

// TerminateWorkflow stores the workflow's ID in TerminatedID.
func (f *FakeTemporal) TerminateWorkflow(_ context.Context, id, _, _ string, _ ...any) error {
	f.TerminatedID = id
	return nil
}

// openRun is a workflow run that no worker executes.
type openRun struct {
	client.WorkflowRun

	id string
}

func (r openRun) GetID() string    { return r.id }
func (r openRun) GetRunID() string { return "run" }

func (r openRun) Get(ctx context.Context, _ any) error {
	<-ctx.Done()
	return ctx.Err()
}

// WorkflowService answers DescribeNamespace and DescribeTaskQueue.
func (f *FakeTemporal) WorkflowService() workflowservice.WorkflowServiceClient {
	return workflowService{fake: f}
}

type workflowService struct {
	workflowservice.WorkflowServiceClient

	fake *FakeTemporal
}

// DescribeNamespace finds every namespace, or returns Err.
func (q workflowService) DescribeNamespace(
	context.Context,
	*workflowservice.DescribeNamespaceRequest,
	...grpc.CallOption,
) (*workflowservice.DescribeNamespaceResponse, error) {
	return &workflowservice.DescribeNamespaceResponse{}, q.fake.Err
}

// OperatorService lists Millwright's search attributes, except UnregisteredAttributes.
func (f *FakeTemporal) OperatorService() operatorservice.OperatorServiceClient {
	return operatorService{fake: f}
}

type operatorService struct {
	operatorservice.OperatorServiceClient

	fake *FakeTemporal
}

func (a operatorService) ListSearchAttributes(
	context.Context,
	*operatorservice.ListSearchAttributesRequest,
	...grpc.CallOption,
) (*operatorservice.ListSearchAttributesResponse, error) {
	answer := &operatorservice.ListSearchAttributesResponse{CustomAttributes: map[string]enumspb.IndexedValueType{}}
	for _, known := range run.SearchAttributes() {
		if !slices.Contains(a.fake.UnregisteredAttributes, known.Name) {
			answer.CustomAttributes[known.Name] = enumspb.INDEXED_VALUE_TYPE_KEYWORD
		}
	}
	return answer, a.fake.Err
}

// DescribeTaskQueue returns no poller for a queue in UnpolledQueues, and one poller for any other queue.
func (q workflowService) DescribeTaskQueue(
	_ context.Context,
	in *workflowservice.DescribeTaskQueueRequest,
	_ ...grpc.CallOption,
) (*workflowservice.DescribeTaskQueueResponse, error) {
	answer := &workflowservice.DescribeTaskQueueResponse{}
	if !slices.Contains(q.fake.UnpolledQueues, in.GetTaskQueue().GetName()) {
		answer.Pollers = []*taskqueuepb.PollerInfo{{Identity: "1@worker", LastAccessTime: timestamppb.Now()}}
	}
	return answer, q.fake.Err
}

func (f *FakeTemporal) DescribeWorkflowExecution(
	_ context.Context,
	id, _ string,
) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	switch {
	case f.Err != nil:
		return nil, f.Err
	case id != f.WorkflowID:
		return nil, serviceerror.NewNotFound("workflow not found for ID: " + id)
	}
	return &workflowservice.DescribeWorkflowExecutionResponse{
		WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{
			Execution: &commonpb.WorkflowExecution{WorkflowId: id, RunId: f.RunID},
			Status:    f.Status,
			Memo:      f.Memo,
		},
		PendingActivities: f.PendingActivities,
	}, nil
}

func (f *FakeTemporal) QueryWorkflow(_ context.Context, id, _, query string, _ ...any) (converter.EncodedValue, error) {
	if f.QueryErr != nil {
		return nil, f.QueryErr
	}
	if id != f.WorkflowID || query != "pods" {
		return nil, errors.New("unexpected query " + query + " of " + id)
	}
	return client.NewValue(EncodePayloads(f.QueryAnswer)), nil
}

func (f *FakeTemporal) Close() { f.IsClosed = true }

// EncodePayloads returns a payload with a value.
func EncodePayloads(value any) *commonpb.Payloads {
	payloads, err := converter.GetDefaultDataConverter().ToPayloads(value)
	if err != nil {
		panic(err)
	}
	return payloads
}

// FakeBackend has the fakes that the commands of a test connect to.
type FakeBackend struct {
	MachineClient *fake.Clientset
	Temporal      *FakeTemporal
	// answers reviews of the user and of the user's permissions; nil if the test needs no review
	ReviewClient   kubernetes.Interface
	ClusterClient  kubernetes.Interface // has the nodes, Leases and Deployments; nil if the test reads none of them
	ClusterAPI     *capitest.FakeServer // the objects of Cluster API; nil if Cluster API is not installed
	Input          string               // the user's input
	DiscoveryCount int                  // how many times a command asked whether Cluster API is installed
}

// NewFakeBackend returns a backend with these objects.
func NewFakeBackend(machines ...runtime.Object) *FakeBackend {
	return &FakeBackend{MachineClient: fake.NewSimpleClientset(machines...), Temporal: &FakeTemporal{}}
}

// discoveryClient is a discovery client that can only report whether Cluster API is installed.
type discoveryClient struct{ *FakeBackend }

// ServerResourcesForGroupVersion finds the API group if Cluster API is installed.
func (s discoveryClient) ServerResourcesForGroupVersion(version string) (*metav1.APIResourceList, error) {
	s.DiscoveryCount++
	if s.ClusterAPI == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, version)
	}
	return &metav1.APIResourceList{GroupVersion: version}, nil
}

// Environment returns an environment that connects commands to the fakes, at the time Now.
func (w *FakeBackend) Environment() kubecli.Environment {
	return kubecli.Environment{
		NewClients: func(kubecli.ClusterAccess) (kubecli.Clients, error) {
			clients := kubecli.Clients{
				MachineClient: w.MachineClient,
				ClusterAPI:    kubecli.NewClusterAPIReader(nil, discoveryClient{w}),
			}
			if w.ClusterAPI != nil {
				clients.ClusterAPI = kubecli.NewClusterAPIReader(w.ClusterAPI.Client, discoveryClient{w})
			}
			if w.ClusterClient != nil {
				clients.Core, clients.Leases, clients.Apps = w.ClusterClient.CoreV1(), w.ClusterClient.CoordinationV1(), w.ClusterClient.AppsV1()
			}
			if w.ReviewClient != nil {
				clients.UserReviews, clients.AccessReviews = w.ReviewClient.AuthenticationV1(), w.ReviewClient.AuthorizationV1()
			}
			return clients, nil
		},
		DialTemporal: func(kubecli.TemporalFlags) (client.Client, error) { return w.Temporal, nil },
		Now:          func() time.Time { return Now },
	}
}

// Run runs a command with these arguments, and returns what it printed.
func (w *FakeBackend) Run(ctx context.Context, c *cobra.Command, args ...string) (string, error) {
	var out bytes.Buffer
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetArgs(args)
	c.SetOut(&out)
	c.SetIn(strings.NewReader(w.Input))
	err := c.ExecuteContext(ctx)
	return out.String(), err
}

// Patches returns the patches of Millwright's objects that were sent, each as TYPE PATCH.
func (w *FakeBackend) Patches() []string {
	var sent []string
	for _, action := range w.MachineClient.Actions() {
		if patch, ok := action.(clienttesting.PatchAction); ok {
			sent = append(sent, string(patch.GetPatchType())+" "+string(patch.GetPatch()))
		}
	}
	return sent
}

// CancellingWriter is an output that cancels its command at the first write, as Ctrl-C would.
type CancellingWriter struct {
	bytes.Buffer

	Cancel context.CancelFunc
}

// Write calls Cancel and keeps the text.
func (p *CancellingWriter) Write(text []byte) (int, error) {
	p.Cancel()
	return p.Buffer.Write(text)
}
