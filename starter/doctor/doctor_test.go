package doctor

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fakediscovery "k8s.io/client-go/discovery/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"millwright/api/v1alpha1"
	"millwright/starter/clitest"
)

// installed is a cluster with the CRDs and one class.
func installed(t *testing.T, kinds ...string) *clitest.World {
	t.Helper()
	class := &v1alpha1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "small"}, Provider: "aws"}
	w := clitest.NewWorld(class)
	api := &metav1.APIResourceList{GroupVersion: v1alpha1.SchemeGroupVersion.String()}
	for _, kind := range kinds {
		api.APIResources = append(api.APIResources, metav1.APIResource{Name: kind})
	}
	discovery, is := w.Machines.Discovery().(*fakediscovery.FakeDiscovery)
	require.True(t, is)
	if len(kinds) > 0 {
		discovery.Resources = []*metav1.APIResourceList{api}
	}
	return w
}

func TestDoctor(t *testing.T) {
	all := []string{"machines", "machinesets", "machinedeployments", "machineclasses", "machinedrainrules", "rolloutpolicies", "machines/status"}
	const well = "ok      Temporal and its namespace\nok      search attributes\n" +
		"ok      queue garden/machines: 1 worker\nok      queue garden/kubernetes: 1 worker\nok      queue garden/drains: 1 worker\n"
	for name, row := range map[string]struct {
		kinds    []string
		args     []string
		temporal func(*clitest.FakeTemporal)
		says     string
		fails    string
	}{
		"all is well": {
			kinds: all, args: []string{"--cluster-name", "garden"}, temporal: func(*clitest.FakeTemporal) {},
			says: "ok      API server and CRDs\n" + well + "ok      queue garden/provider-aws: 1 worker\n",
		},
		"the CRDs are of an older version": {
			kinds: all[:4], args: []string{"--cluster-name", "garden"}, temporal: func(*clitest.FakeTemporal) {},
			says: "FAILED  API server and CRDs: no machinedrainrules, rolloutpolicies\n        install the CRDs of this version: kubectl apply -k deploy/crds\n" +
				well + "ok      queue garden/provider-aws: 1 worker\n",
			fails: "1 check failed",
		},
		"nobody serves a provider, and a search attribute is missing": {
			kinds: all, args: []string{"--cluster-name", "garden"}, temporal: func(f *clitest.FakeTemporal) {
				f.Unpolled, f.Unregistered = []string{"garden/provider-aws"}, []string{"Stuck"}
			},
			says: "ok      API server and CRDs\nok      Temporal and its namespace\nFAILED  search attributes: no Stuck\n        starter bootstrap\n" +
				"ok      queue garden/machines: 1 worker\nok      queue garden/kubernetes: 1 worker\nok      queue garden/drains: 1 worker\n" +
				"FAILED  queue garden/provider-aws: no worker polls it\n        start a worker with --queues=provider-aws\n",
			fails: "2 checks failed",
		},
		"Temporal is down": {
			kinds: all, args: []string{"--cluster-name", "garden"}, temporal: func(f *clitest.FakeTemporal) { f.Err = errors.New("connection refused") },
			says:  "ok      API server and CRDs\nFAILED  Temporal and its namespace: connection refused\n        check --temporal-address; make the namespace: starter bootstrap\n",
			fails: "1 check failed",
		},
		"the installation is not named": {
			kinds: all, args: []string{"--cluster-name", ""}, temporal: func(*clitest.FakeTemporal) {},
			says:  "ok      API server and CRDs\nok      Temporal and its namespace\nok      search attributes\nFAILED  queues: the installation is not known\n        give --cluster-name\n",
			fails: "1 check failed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := installed(t, row.kinds...)
			row.temporal(w.Temporal)
			out, err := w.Run(t.Context(), Command(w.Environment()), row.args...)
			assert.Equal(t, row.says, out)
			if row.fails == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, row.fails)
		})
	}
}

// known is an API server that knows the user ann. She may change what is in may, and her clock is behind by some time.
func known(behind time.Duration, may ...string) *kubefake.Clientset {
	kube := kubefake.NewClientset()
	kube.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.SelfSubjectReview{
			ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(clitest.Now.Add(behind))},
			Status:     authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "ann"}},
		}, nil
	})
	kube.PrependReactor("create", "selfsubjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		asked := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview)
		asked.Status.Allowed = slices.Contains(may, asked.Spec.ResourceAttributes.Verb+" "+asked.Spec.ResourceAttributes.Resource)
		return true, asked, nil
	})
	return kube
}

// The Leases say that worker and bridge are at work, and of which installation they are.
func TestDoctorReadsTheLeases(t *testing.T) {
	w := installed(t, "machines", "machinesets", "machinedeployments", "machineclasses", "machinedrainrules", "rolloutpolicies")
	lease := func(name string) *coordinationv1.Lease {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: "millwright", Name: name, Annotations: map[string]string{v1alpha1.AnnotationInstallation: "garden"},
		}}
		l.Spec.RenewTime = new(metav1.NewMicroTime(clitest.Now))
		return l
	}
	w.Cluster = kubefake.NewClientset(lease(v1alpha1.LeaseWorkers), lease("millwright-bridge"))
	out, err := w.Run(t.Context(), Command(w.Environment()))
	require.NoError(t, err)
	assert.Contains(t, out, "ok      heartbeats of worker and bridge\n")
	assert.Contains(t, out, "ok      queue garden/machines: 1 worker\n")
}

func TestDoctorChecksTheUser(t *testing.T) {
	for name, row := range map[string]struct {
		kube  *kubefake.Clientset
		says  string
		fails bool
	}{
		"one who changes machines": {known(4*time.Second, "patch machines", "patch machinedeployments"), "ok      user ann may change machines, machinedeployments\nok      clock of this machine\n", false},
		"one who only reads":       {known(-4 * time.Second), "ok      user ann may change nothing\nok      clock of this machine\n", false},
		"a clock that is behind": {
			known(time.Minute), "ok      user ann may change nothing\nFAILED  clock of this machine: 60s from that of the API server\n" +
				"        set it by NTP: starter prints times and ages by this clock\n", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := installed(t, "machines", "machinesets", "machinedeployments", "machineclasses", "machinedrainrules", "rolloutpolicies")
			w.Kube = row.kube
			out, err := w.Run(t.Context(), Command(w.Environment()), "--cluster-name", "garden")
			assert.Contains(t, out, row.says)
			assert.Equal(t, row.fails, err != nil)
		})
	}
}
