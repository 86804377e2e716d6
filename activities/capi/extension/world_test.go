package extension

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"millwright/observe/capi/capitest"
)

// secretText is in the templates, and in the responses of the extensions of some tests. No answer and no error may
// contain the secret.
const secretText = "token-abcdef"

// askErrorPrefix is the beginning of the error of a failed call.
const askErrorPrefix = "ask handler can-update.ext of the hook CanUpdateMachineSet: "

// These patches turn the objects of formerSetWithTemplates into the objects of currentSetWithTemplates.
const (
	machineSetPatch     = `[{"op":"replace","path":"/spec/template/spec/version","value":"v1.32.0"}]`
	bootstrapPatch      = `[{"op":"replace","path":"/spec/template/spec/files/0/content","value":"` + secretText + `-2"}]`
	infrastructurePatch = `{"spec":{"template":{"spec":{"cpus":4}}}}`
)

// formerSetWithTemplates returns a former set with its templates.
func formerSetWithTemplates() SetWithTemplates {
	return SetWithTemplates{
		Set: capitest.NewSet("before", 3),
		Bootstrap: capitest.NewBootstrapTemplate(
			withSpecField([]any{map[string]any{"path": "/etc/token", "content": secretText}}, "files"),
			func(o *unstructured.Unstructured) {
				o.SetLabels(map[string]string{"tier": "web"})
				o.SetAnnotations(map[string]string{"owner": "ann"})
			},
		),
		Infrastructure: capitest.NewInfrastructureTemplate(),
	}
}

// currentSetWithTemplates returns a current set with its templates. The current objects have another version, another
// file and more CPUs than the former objects.
func currentSetWithTemplates() SetWithTemplates {
	o := SetWithTemplates{
		Set: capitest.NewSet("after", 0, func(s *clusterv1.MachineSet) {
			s.Spec.Template.Spec.Version = "v1.32.0"
			s.Spec.Template.Spec.Bootstrap.ConfigRef.Name, s.Spec.Template.Spec.InfrastructureRef.Name = "join-2", "big"
		}),
		Bootstrap: capitest.NewBootstrapTemplate(
			withSpecField([]any{map[string]any{"path": "/etc/token", "content": secretText + "-2"}}, "files"),
		),
		Infrastructure: capitest.NewInfrastructureTemplate(withSpecField(int64(4), "cpus")),
	}
	o.Bootstrap.SetName("join-2")
	o.Infrastructure.SetName("big")
	return o
}

// withSpecField sets a field in spec.template.spec of a template.
func withSpecField(value any, field ...string) capitest.ProviderObjectChange {
	return func(o *unstructured.Unstructured) {
		if err := unstructured.SetNestedField(o.Object, value, append(patchablePath(), field...)...); err != nil {
			panic(err)
		}
	}
}

// newExtensionConfig returns an ExtensionConfig with one handler for the hook.
func newExtensionConfig(name string, change ...func(*runtimev1.ExtensionConfig)) runtimev1.ExtensionConfig {
	c := runtimev1.ExtensionConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.NamespaceSelector = &metav1.LabelSelector{}
	c.Status.Handlers = []runtimev1.ExtensionHandler{newExtensionHandler("can-update." + name)}
	for _, change := range change {
		change(&c)
	}
	return c
}

// newExtensionHandler returns a handler for the hook, as Cluster API's discovery writes it into status.handlers.
func newExtensionHandler(name string, change ...func(*runtimev1.ExtensionHandler)) runtimev1.ExtensionHandler {
	h := runtimev1.ExtensionHandler{
		Name:           name,
		TimeoutSeconds: 30,
		FailurePolicy:  runtimev1.FailurePolicyFail,
		RequestHook: runtimev1.GroupVersionHook{
			APIVersion: "hooks.runtime.cluster.x-k8s.io/v1alpha1",
			Hook:       "CanUpdateMachineSet",
		},
	}
	for _, change := range change {
		change(&h)
	}
	return h
}

// setFailurePolicyIgnore sets the failure policy Ignore on the handlers of an ExtensionConfig.
func setFailurePolicyIgnore(c *runtimev1.ExtensionConfig) {
	for i := range c.Status.Handlers {
		c.Status.Handlers[i].FailurePolicy = runtimev1.FailurePolicyIgnore
	}
}

// receivedCall is a call that an extension has received.
type receivedCall struct {
	method, uri, contentType string
	body                     map[string]any
}

// fakeExtension is a runtime extension that runs in the test.
type fakeExtension struct {
	*httptest.Server
	mu    sync.Mutex
	calls []receivedCall
}

// startExtension starts an extension that handles calls with respond.
func startExtension(t *testing.T, respond http.HandlerFunc) *fakeExtension {
	t.Helper()
	e := &fakeExtension{}
	e.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		call := receivedCall{method: r.Method, uri: r.RequestURI, contentType: r.Header.Get("Content-Type")}
		assert.NoError(t, json.Unmarshal(raw, &call.body))
		e.mu.Lock()
		e.calls = append(e.calls, call)
		e.mu.Unlock()
		respond(w, r)
	}))
	e.Config.ErrorLog = log.New(io.Discard, "", 0) // drops the errors of TLS handshakes that the client aborts
	e.StartTLS()
	t.Cleanup(e.Close)
	return e
}

// configureURL makes an ExtensionConfig point to the extension.
func (e *fakeExtension) configureURL(c *runtimev1.ExtensionConfig) {
	c.Spec.ClientConfig.URL = e.URL + "/base"
	c.Spec.ClientConfig.CABundle = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: e.Certificate().Raw})
}

// receivedCalls returns all calls so far.
func (e *fakeExtension) receivedCalls() []receivedCall {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.calls
}

// newResponseHandler returns a handler that writes a fixed response.
func newResponseHandler(t *testing.T, r hooksv1.CanUpdateMachineSetResponse) http.HandlerFunc {
	raw, err := json.Marshal(r)
	require.NoError(t, err)
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(raw) }
}

// successResponse returns a response with patches of the set, the bootstrap template and the infrastructure template.
// An empty text means no patch.
func successResponse(set, bootstrap, infrastructure string) (r hooksv1.CanUpdateMachineSetResponse) {
	r.Status = hooksv1.ResponseStatusSuccess
	r.MachineSetPatch = newPatch(set)
	r.BootstrapConfigTemplatePatch = newPatch(bootstrap)
	r.InfrastructureMachineTemplatePatch = newPatch(infrastructure)
	return r
}

// newPatch returns a patch: a text in list form is a JSON patch, other text a JSON merge patch.
func newPatch(text string) hooksv1.Patch {
	switch {
	case text == "":
		return hooksv1.Patch{}
	case text[0] == '[':
		return hooksv1.Patch{PatchType: hooksv1.JSONPatchType, Patch: []byte(text)}
	default:
		return hooksv1.Patch{PatchType: hooksv1.JSONMergePatchType, Patch: []byte(text)}
	}
}
