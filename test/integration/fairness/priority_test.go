//go:build integration

package fairness

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"millwright/devstack/component"
	"millwright/test/integration/rig"
)

// The API server assigns the requests of Millwright's processes to the priority level of Millwright, and their requests
// for Leases to the priority level of leader election. The stack applies the flow schemas of an installation for the
// stack's own users.
func TestRequestsHaveMillwrightsPriorityLevel(t *testing.T) {
	flows := testRig.Kube.FlowcontrolV1().FlowSchemas()
	for _, identity := range []string{component.WorkerIdentity, component.BridgeIdentity, component.ProviderIdentity} {
		config, err := clientcmd.BuildConfigFromFlags("", testRig.Stack.KubeconfigPath(identity))
		require.NoError(t, err)
		for path, name := range map[string]string{
			"/apis/machine.sapcloud.io/v1alpha1/machines":                              "millwright",
			"/apis/coordination.k8s.io/v1/namespaces/default/leases/millwright-bridge": "millwright-leases",
		} {
			schema, err := flows.Get(t.Context(), name, metav1.GetOptions{})
			require.NoError(t, err)
			rig.Eventually(t, name+" serves "+identity, func() (bool, any) {
				_, header := rig.GetAPIServerPath(t, config, path)
				return header.Get("X-Kubernetes-Pf-Flowschema-Uid") == string(schema.UID), header
			})
		}
	}
}
