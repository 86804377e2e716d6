// Tier: test-all. The worker and the bridge of this package have flags that the other packages do not use.

//go:build integration

// Package mtls tests worker, bridge and millwright with a Temporal that requires client certificates, and with
// encrypted payloads.
package mtls

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/proxy"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"google.golang.org/protobuf/proto"

	"millwright/activities/kube"
	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/process/connection"
	"millwright/starter/kubecli"
	"millwright/starter/providers"
	"millwright/test/integration/rig"
	"millwright/workflows/run"
)

var (
	testRig       *rig.Rig
	keylessClient client.Client // client without encryption keys, which reads the payloads as Temporal stores them
	keysPath      string        // path of the file with the encryption keys
)

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	folder, err := os.MkdirTemp("", "millwright-keys-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(folder) }()
	key := make([]byte, 32)
	_, _ = rand.Read(key) // rand.Read never fails
	text, token := base64.StdEncoding.EncodeToString(key), rand.Text()
	keysPath = filepath.Join(folder, "keys")
	apiKey := filepath.Join(folder, "api-key")
	if err := errors.Join(
		os.WriteFile(keysPath, []byte("first "+text+"\n"), 0o600),
		os.WriteFile(apiKey, []byte(token), 0o600),
	); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// the stack's Temporal accepts any API key
	given := []string{"--payload-keys-path", keysPath, "--temporal-api-key-path", apiKey}
	options := stack.Options{
		RequireTemporalTLS: true,
		Args:               map[string][]string{component.Worker: given, component.Bridge: given},
	}
	return rig.Main(m, options, func(up *rig.Rig) {
		testRig, keylessClient = up, up.Temporal
		testRig.Secrets = []string{string(key), text, token}
		if testRig.Temporal, err = client.NewLazyClient(
			clientOptions(append(certificateFlags(), "--payload-keys-path", keysPath)...),
		); err != nil {
			panic(err)
		}
	})
}

// certificateFlags returns the flags of a client with a certificate that Temporal accepts.
func certificateFlags() []string {
	l := testRig.Stack.StackFolder()
	return []string{
		"--temporal-tls-cert-path",
		l.TemporalClientCertificateFile(),
		"--temporal-tls-key-path",
		l.TemporalClientKeyFile(),
		"--temporal-tls-ca-path",
		l.TemporalCACertificateFile(),
	}
}

// clientOptions returns the options of a client with these flags.
func clientOptions(arguments ...string) client.Options {
	var flags connection.Flags
	set := pflag.NewFlagSet("test", pflag.PanicOnError)
	flags.Register(set)
	_ = set.Parse(
		append(
			arguments,
			"--temporal-address",
			testRig.Stack.TemporalAddress(),
			"--temporal-namespace",
			run.TemporalNamespace,
		),
	)
	options, err := flags.ClientOptions()
	if err != nil {
		panic(err)
	}
	options.Logger = log.NewStructuredLogger(slog.New(slog.DiscardHandler))
	return options
}

func TestMachinesAreManagedWhenTemporalDemandsCertificates(t *testing.T) {
	const namespace = "mtls"
	testRig.CreateNamespace(t, namespace, "")
	p := testRig.CreatePool(t, namespace, namespace, 2)
	p.AwaitRunningMachines(t, 2)

	t.Run("nobody else is let in", func(t *testing.T) {
		for name, arguments := range map[string][]string{
			"without TLS":           {"--temporal-tls=false"},
			"without a certificate": {"--temporal-tls-ca-path", testRig.Stack.StackFolder().TemporalCACertificateFile()},
		} {
			_, err := client.DialContext(t.Context(), clientOptions(arguments...))
			require.Error(t, err, name)
			assert.NotContains(t, err.Error(), "deadline", "%s: the server refuses at once", name)
			t.Log(name+":", err)
		}
	})
	t.Run("millwright, by flags and by the environment", func(t *testing.T) {
		check := []string{
			"provider",
			"check",
			namespace + "/small",
			"--cluster-name",
			string(rig.Installation),
			"--payload-keys-path",
			keysPath,
		}
		const works = "provider virtual can use class mtls/small: the cloud lists 2 instances"
		assert.Equal(t, works, testRig.RunMillwright(t, append(check, certificateFlags()...)...)[0])
		l := testRig.Stack.StackFolder()
		for name, path := range map[string]string{"CLIENT_CERT": l.TemporalClientCertificateFile(), "CLIENT_KEY": l.TemporalClientKeyFile(), "SERVER_CA_CERT": l.TemporalCACertificateFile()} {
			t.Setenv("TEMPORAL_TLS_"+name+"_PATH", path)
		}
		assert.Equal(t, works, testRig.RunMillwright(t, check...)[0])
	})
	t.Run("certificates of a new CA serve processes that run", func(t *testing.T) {
		require.NoError(t, component.WriteTemporalCertificates(testRig.Stack.StackFolder()))
		require.NoError(t, testRig.Stack.RestartComponent(t.Context(), component.Temporal))
		p.Scale(t, 3)
		p.AwaitRunningMachines(t, 3)
	})
	p.Delete(t)
	p.AwaitPoolGone(t)
}

func TestWhatTemporalStoresIsEncrypted(t *testing.T) {
	const namespace = "encrypted"
	testRig.CreateNamespace(t, namespace, "")
	p := testRig.CreatePool(t, namespace, namespace, 1)
	p.AwaitRunningMachines(t, 1)
	id := rig.Installation.ID(
		run.KindMachineDeployment,
		kube.Ref{Namespace: namespace, Name: namespace, UID: string(p.Deployment(t).UID)},
	)

	encodings := map[string]int{}
	count := func(_ *proxy.VisitPayloadsContext, payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
		for _, p := range payloads {
			encodings[string(p.GetMetadata()["encoding"])]++
		}
		return payloads, nil
	}
	raw := *testRig
	raw.Temporal = keylessClient
	for _, event := range raw.History(t, id, "").GetEvents() {
		require.NoError(
			t,
			proxy.VisitPayloads(t.Context(), event, proxy.VisitPayloadsOptions{Visitor: count, SkipSearchAttributes: true}),
		)
	}
	assert.Positive(t, encodings["binary/encrypted"])
	assert.Len(t, encodings, 1, "all are encrypted: %v", encodings)

	mark := func(c client.Client) *commonpb.Memo {
		answer, err := c.WorkflowService().
			DescribeWorkflowExecution(t.Context(), &workflowservice.DescribeWorkflowExecutionRequest{
				Namespace: run.TemporalNamespace,
				Execution: &commonpb.WorkflowExecution{WorkflowId: rig.Installation.ReservationWorkflowID()},
			})
		require.NoError(t, err)
		return answer.GetWorkflowExecutionInfo().GetMemo()
	}
	for name, payload := range mark(keylessClient).GetFields() {
		assert.Equal(t, "binary/encrypted", string(payload.GetMetadata()["encoding"]), name)
	}
	assert.False(t, proto.Equal(mark(keylessClient), mark(testRig.Temporal)), "with the keys it is readable")
	assert.NotEmpty(t, testRig.WorkflowDetails(t, id), "and so is the page of a run")

	another := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(another, []byte("second "+base64.StdEncoding.EncodeToString(make([]byte, 32))), 0o600))
	other := providers.Command(kubecli.NewEnvironment())
	// like the main command of millwright, print neither errors nor usage
	other.SilenceErrors, other.SilenceUsage = true, true
	other.SetArgs(
		append(
			certificateFlags(),
			"check",
			namespace+"/small",
			"--cluster-name",
			string(rig.Installation),
			"--payload-keys-path",
			another,
			"--kubeconfig",
			testRig.Stack.KubeconfigPath(component.TestIdentity),
			"--temporal-address",
			testRig.Stack.TemporalAddress(),
		),
	)
	// The timeout is long, because the command must fail with an error that names the missing key, not with a timeout.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	require.ErrorContains(
		t,
		other.ExecuteContext(ctx),
		`a payload is encrypted with the key "first", which is not in the file of --payload-keys-path`,
	)

	p.Delete(t)
	p.AwaitPoolGone(t)
}
