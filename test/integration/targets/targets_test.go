// Tier: test-all. The package tests another value of a flag.

//go:build integration

// Package targets tests namespaces that have their own target clusters. Worker and bridge run with --target-secret. The
// stack's API server acts as each target cluster. Each target has a different kubeconfig.
package targets

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/observe/target"
	"millwright/test/integration/rig"
)

const targetSecretName = "millwright-target"

var (
	testRig     *rig.Rig
	targetFlags = []string{"--target-secret=" + targetSecretName, "--hold-by-autoscaler-guard"}

	stackOptions = stack.Options{
		Args: map[string][]string{component.Worker: targetFlags, component.Bridge: targetFlags},
		CompletePlan: func(_ context.Context, plan *component.Plan) ([]*os.File, error) {
			plan.ManifestFolders = append(plan.ManifestFolders, filepath.Join(plan.Repo, "test/integration/targets/rights"))
			return nil, nil
		},
	}
)

func TestMain(m *testing.M) {
	os.Exit(rig.Main(m, stackOptions, func(up *rig.Rig) { testRig = up }))
}

// workerKubeconfig returns the worker's kubeconfig for the stack's API server. The kubeconfig contains the data of the
// files instead of file names.
func workerKubeconfig(t *testing.T, change ...func(*clientcmdapi.Cluster)) []byte {
	t.Helper()
	config, err := clientcmd.LoadFromFile(
		component.StackFolder(testRig.Stack.Dir()).KubeconfigFile(component.WorkerIdentity),
	)
	require.NoError(t, err)
	require.NoError(t, clientcmdapi.FlattenConfig(config))
	for _, cluster := range config.Clusters {
		for _, f := range change {
			f(cluster)
		}
	}
	text, err := clientcmd.Write(*config)
	require.NoError(t, err)
	return text
}

func writeKubeconfigSecret(t *testing.T, namespace string, text []byte) {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: targetSecretName},
		Data:       map[string][]byte{"kubeconfig": text},
	}
	secrets := testRig.Kube.CoreV1().Secrets(namespace)
	if _, err := secrets.Create(t.Context(), secret, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
		return
	}
	_, err := secrets.Update(t.Context(), secret, metav1.UpdateOptions{})
	require.NoError(t, err)
}

func createPool(t *testing.T, namespace string) *rig.Pool {
	t.Helper()
	testRig.CreateNamespace(t, namespace, `{"region":"eu","zone":"eu-1","instanceType":"small","initialize":true}`)
	return testRig.CreatePool(t, namespace, namespace, 2)
}

// awaitBlockedMachines waits until both machines of a pool wait for the target, and returns the reason.
func awaitBlockedMachines(t *testing.T, p *rig.Pool) (why string) {
	t.Helper()
	rig.Eventually(t, "both machines wait for the target cluster", func() (bool, any) {
		blocked := 0
		for _, m := range p.Machines(t) {
			if o := m.Status.CurrentOperation; o != nil && len(o.BlockedBy) > 0 && o.BlockedBy[0] == "TargetUnavailable" {
				blocked++
				why = o.Cause
			}
		}
		return blocked == 2, p.Machines(t)
	})
	require.Empty(t, p.ProviderIDs(t))
	return why
}

// startSilentServer starts a server that accepts connections and never answers.
func startSilentServer(t *testing.T) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	go func() {
		for {
			if _, err := listener.Accept(); err != nil {
				return
			}
		}
	}()
	return listener.Addr().String()
}

// startHTTPServer starts an HTTP server, and returns its address.
func startHTTPServer(t *testing.T, answer http.HandlerFunc) (address string) {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

func TestEachNamespaceHasItsTarget(t *testing.T) {
	good := createPool(t, "good")
	why := awaitBlockedMachines(t, good)
	assert.Equal(
		t,
		"the target cluster of namespace good is not connected: Secret good/millwright-target with a kubeconfig does not exist",
		why,
	)
	writeKubeconfigSecret(t, "good", workerKubeconfig(t))
	good.AwaitRunningMachines(t, 2)
	good.AwaitSyncedNodes(t)
	assert.Positive(t, testRig.ReadMetric(t, component.Worker, "millwright_targets"))

	t.Run("dead targets stop nobody else", func(t *testing.T) {
		tarpit, dead := startSilentServer(t), map[string]*rig.Pool{}
		for name, server := range map[string]string{"refusing": "https://127.0.0.1:1", "hanging": "https://" + tarpit} {
			dead[name] = createPool(t, name)
			writeKubeconfigSecret(t, name, workerKubeconfig(t, func(c *clientcmdapi.Cluster) { c.Server = server }))
			awaitBlockedMachines(t, dead[name])
		}
		begun := time.Now()
		good.Scale(t, 4)
		good.AwaitRunningMachines(t, 4)
		t.Logf("two machines joined in %s while two targets were dead", time.Since(begun).Round(time.Millisecond))
		good.Scale(t, 1)
		good.AwaitRunningMachines(t, 1)
		for name, p := range dead {
			awaitBlockedMachines(t, p)
			writeKubeconfigSecret(t, name, workerKubeconfig(t))
			p.AwaitRunningMachines(t, 2)
		}
	})

	t.Run("a kubeconfig with a program is refused", func(t *testing.T) {
		p := createPool(t, "program")
		text := strings.Replace(
			string(workerKubeconfig(t)),
			"  user:\n",
			"  user:\n    exec: {apiVersion: client.authentication.k8s.io/v1, command: touch, interactiveMode: Never}\n",
			1,
		)
		writeKubeconfigSecret(t, "program", []byte(text))
		rig.Eventually(t, "the machines name the program", func() (bool, any) {
			why := awaitBlockedMachines(t, p)
			return strings.Contains(why, "a program that gives credentials"), why
		})
	})

	t.Run("machines of a namespace without a cluster need no node", func(t *testing.T) {
		p := createPool(t, "nodeless")
		writeKubeconfigSecret(t, "nodeless", []byte(target.NoClusterValue))
		rig.Eventually(t, "both machines are Available", func() (bool, any) {
			available := 0
			for _, m := range p.Machines(t) {
				if m.Status.CurrentStatus.Phase == v1alpha1.MachineAvailable {
					available++
				}
			}
			return available == 2, p.Machines(t)
		})
	})

	t.Run("a hostile API server gets no token and shows no text", func(t *testing.T) {
		tokens := make(chan string, 100)
		thief := startHTTPServer(t, func(_ http.ResponseWriter, r *http.Request) { tokens <- r.Header.Get("Authorization") })
		for name, answer := range map[string]http.HandlerFunc{
			"redirecting": http.RedirectHandler(thief, http.StatusTemporaryRedirect).ServeHTTP,
			"talking": func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusForbidden)
				_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","code":403,"message":"text of the API server"}`)
			},
			"endless": func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				for err := error(nil); err == nil; {
					_, err = w.Write(make([]byte, 1<<16))
				}
			},
		} {
			p := createPool(t, name)
			server := startHTTPServer(t, answer)
			writeKubeconfigSecret(t, name, workerKubeconfig(t, func(c *clientcmdapi.Cluster) {
				c.Server, c.CertificateAuthorityData = server, nil
			}))
			rig.Eventually(t, "the machines name the answer", func() (bool, any) {
				why := awaitBlockedMachines(t, p)
				return strings.Contains(why, "the API server"), why
			})
			assert.NotContains(t, awaitBlockedMachines(t, p), "text of")
		}
		assert.Empty(t, tokens, "a redirect was followed")
		good.Scale(t, 2)
		good.AwaitRunningMachines(t, 2)
	})

	t.Run("the workers report the states", func(t *testing.T) {
		rig.Eventually(t, "the ConfigMap has the states", func() (bool, any) {
			reports, err := testRig.Kube.CoreV1().
				ConfigMaps("default").
				Get(t.Context(), target.ReportsConfigMapName, metav1.GetOptions{})
			require.NoError(t, err)
			states := map[string]string{}
			for _, report := range target.ReadReports(reports, time.Now()) {
				states[report.Namespace] = fmt.Sprint(report.State)
			}
			return states["good"] == "Ready" && states["program"] == "Missing", states
		})
	})
}
