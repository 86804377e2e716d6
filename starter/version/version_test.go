package version

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubeversion "k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"millwright/api/v1alpha1"
	"millwright/process/commandline"
	"millwright/starter/clitest"
	"millwright/starter/kubecli"
)

type fakeTemporal struct {
	client.Client

	err error
}

func (f fakeTemporal) Close() {}

func (f fakeTemporal) WorkflowService() workflowservice.WorkflowServiceClient {
	return workflowService{err: f.err}
}

type workflowService struct {
	workflowservice.WorkflowServiceClient

	err error
}

func (s workflowService) GetSystemInfo(
	context.Context,
	*workflowservice.GetSystemInfoRequest,
	...grpc.CallOption,
) (*workflowservice.GetSystemInfoResponse, error) {
	return &workflowservice.GetSystemInfoResponse{ServerVersion: "1.29.1"}, s.err
}

func newLease(namespace, name, version string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Annotations: map[string]string{v1alpha1.AnnotationVersion: version},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("host-12"), RenewTime: new(metav1.NewMicroTime(clitest.Now.Add(-4 * time.Second))),
		},
	}
}

func newEnvironment(w *clitest.FakeBackend, temporal fakeTemporal, leases ...runtime.Object) kubecli.Environment {
	w.ClusterClient = kubefake.NewClientset(leases...)
	w.MachineClient.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &kubeversion.Info{
		GitVersion: "v1.36.1",
	}
	e := w.Environment()
	e.DialTemporal = func(kubecli.TemporalFlags) (client.Client, error) { return temporal, nil }
	return e
}

func TestVersionPrintsAllParts(t *testing.T) {
	w := clitest.NewFakeBackend()
	e := newEnvironment(
		w,
		fakeTemporal{},
		newLease("default", "millwright-worker", "v0.1.0, go1.26.8"),
		newLease("default", "millwright-bridge", ""),
	)
	out, err := w.Run(t.Context(), Command(e))
	require.NoError(t, err)
	assert.Equal(t, "client       "+commandline.Version()+`
worker       v0.1.0, go1.26.8 (host-12, 4s ago)
bridge       unknown: Lease default/millwright-bridge has no annotation machine.sapcloud.io/version: the bridge is of an earlier build (host-12, 4s ago)
API server   v1.36.1
Temporal     1.29.1
`, out)
	out, err = w.Run(t.Context(), Command(e), "-o", "json")
	require.NoError(t, err)
	var got struct{ Items []part }
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.Len(t, got.Items, 5)
	assert.NotNil(t, got.Items[0].Build)
	assert.Equal(t, part{
		Name: "worker", Version: "v0.1.0, go1.26.8", Lease: "default/millwright-worker", Holder: "host-12",
		RenewedAt: clitest.Now.Add(-4 * time.Second),
	}, got.Items[1])
	assert.NotEmpty(t, got.Items[2].UnknownReason)
}

func TestVersionSaysWhyAPartIsNotKnown(t *testing.T) {
	w := clitest.NewFakeBackend()
	out, err := w.Run(t.Context(), Command(newEnvironment(w, fakeTemporal{err: errors.New("connection refused")})))
	require.NoError(t, err)
	assert.Contains(t, out, "worker       unknown: there is no Lease millwright-worker: none has run\n")
	assert.Contains(t, out, "bridge       unknown: there is no Lease millwright-bridge: none has run\n")
	assert.Contains(t, out, "Temporal     unknown: connection refused at 127.0.0.1:7233\n")

	e := newEnvironment(w, fakeTemporal{})
	e.NewClients = func(kubecli.ClusterAccess) (kubecli.Clients, error) {
		return kubecli.Clients{}, errors.New("no kubeconfig")
	}
	e.DialTemporal = func(kubecli.TemporalFlags) (client.Client, error) { return nil, errors.New("no\n certificate") }
	out, err = w.Run(t.Context(), Command(e))
	require.NoError(t, err)
	assert.Equal(t, 3, strings.Count(out, "unknown: no kubeconfig\n"))
	assert.Contains(t, out, "client       "+commandline.Version())
	assert.Contains(t, out, "Temporal     unknown: no certificate\n")
}

func TestVersionListsEachInstallation(t *testing.T) {
	w := clitest.NewFakeBackend()
	e := newEnvironment(
		w,
		fakeTemporal{},
		newLease("b", "millwright-worker", "v0.2.0"),
		newLease("a", "millwright-worker", "v0.1.0"),
	)
	out, err := w.Run(t.Context(), Command(e))
	require.NoError(t, err)
	assert.Contains(t, out, "worker       v0.1.0 (host-12, 4s ago)\nworker       v0.2.0 (host-12, 4s ago)\n")
}
