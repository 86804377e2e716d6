// Package clitest has the fakes with which tests of the starter's commands replace a cluster and Temporal.
package clitest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"millwright/api/generated/clientset/versioned/fake"
	"millwright/starter/kubecli"
)

// Now is the time in all tests. The objects in them changed a quarter of an hour before.
var (
	Now   = time.Date(2026, 11, 21, 14, 6, 7, 0, time.UTC)
	Begun = Now.Add(-15 * time.Minute)
)

// FakeTemporal answers with one open workflow, or with an error.
type FakeTemporal struct {
	client.Client

	ID       string // of the open workflow; others are not found
	Status   enumspb.WorkflowExecutionStatus
	Pending  []*workflowpb.PendingActivityInfo
	Err      error
	Queried  any // answer to the query
	QueryErr error
	Closed   bool
}

func (f *FakeTemporal) DescribeWorkflowExecution(_ context.Context, id, _ string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	switch {
	case f.Err != nil:
		return nil, f.Err
	case id != f.ID:
		return nil, serviceerror.NewNotFound("workflow not found for ID: " + id)
	}
	return &workflowservice.DescribeWorkflowExecutionResponse{
		WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{Status: f.Status}, PendingActivities: f.Pending,
	}, nil
}

func (f *FakeTemporal) QueryWorkflow(_ context.Context, id, _, query string, _ ...any) (converter.EncodedValue, error) {
	if f.QueryErr != nil {
		return nil, f.QueryErr
	}
	if id != f.ID || query != "pods" {
		return nil, errors.New("unexpected query " + query + " of " + id)
	}
	return client.NewValue(Encoded(f.Queried)), nil
}

func (f *FakeTemporal) Close() { f.Closed = true }

// Encoded returns a payload with a value.
func Encoded(value any) *commonpb.Payloads {
	payloads, err := converter.GetDefaultDataConverter().ToPayloads(value)
	if err != nil {
		panic(err)
	}
	return payloads
}

// World is what the commands of a test connect to.
type World struct {
	Machines *fake.Clientset
	Temporal *FakeTemporal
	In       string // what the user types
}

// NewWorld returns a world with these objects.
func NewWorld(machines ...runtime.Object) *World {
	return &World{Machines: fake.NewSimpleClientset(machines...), Temporal: &FakeTemporal{}}
}

// Environment connects commands to the world, at the time Now.
func (w *World) Environment() kubecli.Environment {
	return kubecli.Environment{
		Clients:  func(string) (kubecli.Clients, error) { return kubecli.Clients{Machines: w.Machines}, nil },
		Temporal: func(kubecli.TemporalFlags) (client.Client, error) { return w.Temporal, nil },
		Now:      func() time.Time { return Now },
	}
}

// Run runs a command with these arguments, and returns what it printed.
func (w *World) Run(ctx context.Context, c *cobra.Command, args ...string) (string, error) {
	var out bytes.Buffer
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetArgs(args)
	c.SetOut(&out)
	c.SetIn(strings.NewReader(w.In))
	err := c.ExecuteContext(ctx)
	return out.String(), err
}

// Patches returns the patches that were sent, each with its type.
func (w *World) Patches() []string {
	var sent []string
	for _, action := range w.Machines.Actions() {
		if patch, ok := action.(clienttesting.PatchAction); ok {
			sent = append(sent, string(patch.GetPatchType())+" "+string(patch.GetPatch()))
		}
	}
	return sent
}

// Pressed cancels a command as soon as it has printed something.
type Pressed struct {
	bytes.Buffer

	Cancel context.CancelFunc
}

// Write keeps the text.
func (p *Pressed) Write(text []byte) (int, error) {
	p.Cancel()
	return p.Buffer.Write(text)
}
