package extension

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"millwright/observe/capi/capitest"
)

func TestCanUpdateIfPatchesCoverAllDifferences(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		current  SetWithTemplates
		response hooksv1.CanUpdateMachineSetResponse
		want     string // empty: the update is possible
	}{
		"nothing differs, no patches": {formerSetWithTemplates(), successResponse("", "", ""), ""},
		"patches of nothing":          {formerSetWithTemplates(), successResponse("[]", "{}", "{}"), ""},
		"all differs, no patches": {
			currentSetWithTemplates(), successResponse("", "", ""),
			"MachineSet differs in spec.template.spec.version; KubeadmConfigTemplate differs in spec.template.spec.files[0].content; " +
				"ExampleMachineTemplate differs in spec.template.spec.cpus",
		},
		"all differs, patches of all": {currentSetWithTemplates(), successResponse(machineSetPatch, bootstrapPatch, infrastructurePatch), ""},
		"all differs, patches of some": {
			currentSetWithTemplates(), successResponse(machineSetPatch, "", "{}"),
			"KubeadmConfigTemplate differs in spec.template.spec.files[0].content; ExampleMachineTemplate differs in spec.template.spec.cpus",
		},
		"a patch makes another value": {
			currentSetWithTemplates(), successResponse(machineSetPatch, bootstrapPatch, `{"spec":{"template":{"spec":{"cpus":8}}}}`),
			"ExampleMachineTemplate differs in spec.template.spec.cpus",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := startExtension(t, newResponseHandler(t, c.response))
			a, err := CanUpdate(
				t.Context(),
				[]runtimev1.ExtensionConfig{newExtensionConfig("ext", e.configureURL)},
				nil,
				formerSetWithTemplates(),
				c.current,
			)
			require.NoError(t, err)
			assert.Equal(t, Answer{Possible: c.want == "", Why: c.want}, a)
			assert.Len(t, e.receivedCalls(), 1)
		})
	}
}

func TestCanUpdateWithoutBootstrapTemplates(t *testing.T) {
	t.Parallel()
	former, current := formerSetWithTemplates(), currentSetWithTemplates()
	former.Bootstrap, current.Bootstrap = nil, nil
	// a patch of a missing bootstrap template is ignored
	e := startExtension(t, newResponseHandler(t, successResponse(machineSetPatch, bootstrapPatch, infrastructurePatch)))
	a, err := CanUpdate(
		t.Context(),
		[]runtimev1.ExtensionConfig{newExtensionConfig("ext", e.configureURL)},
		nil,
		former,
		current,
	)
	require.NoError(t, err)
	assert.Equal(t, Answer{Possible: true}, a)
	assert.NotContains(t, e.receivedCalls()[0].body["current"], "bootstrapConfigTemplate")
}

func TestCanUpdateSendsRequestToTheExtension(t *testing.T) {
	t.Parallel()
	e := startExtension(t, newResponseHandler(t, successResponse("", "", "")))
	c := newExtensionConfig("ext", e.configureURL, func(c *runtimev1.ExtensionConfig) {
		c.Spec.Settings = map[string]string{"zone": "a"}
		other := func(h *runtimev1.ExtensionHandler) { h.RequestHook.Hook = "CanUpdateMachine" }
		c.Status.Handlers = []runtimev1.ExtensionHandler{
			newExtensionHandler("can-update-machine.ext", other),
			newExtensionHandler("Can-Update.ext"),
		}
	})
	former, current := formerSetWithTemplates(), currentSetWithTemplates()
	_, err := CanUpdate(t.Context(), []runtimev1.ExtensionConfig{c}, nil, former, current)
	require.NoError(t, err)
	require.Len(t, e.receivedCalls(), 1)
	call := e.receivedCalls()[0]
	assert.Equal(t, "POST", call.method)
	assert.Equal(t, "/base/hooks.runtime.cluster.x-k8s.io/v1alpha1/canupdatemachineset/can-update?timeout=30s", call.uri)
	assert.Equal(t, "application/json", call.contentType)
	assert.Equal(t, "hooks.runtime.cluster.x-k8s.io/v1alpha1", call.body["apiVersion"])
	assert.Equal(t, "CanUpdateMachineSetRequest", call.body["kind"])
	assert.Equal(t, map[string]any{"zone": "a"}, call.body["settings"])
	for side, objects := range map[string]SetWithTemplates{"current": former, "desired": current} {
		sent := func(what string) *unstructured.Unstructured {
			o, _, err := unstructured.NestedMap(call.body, side, what)
			require.NoError(t, err)
			return &unstructured.Unstructured{Object: o}
		}
		set := sent("machineSet")
		assert.Equal(t, "cluster.x-k8s.io/v1beta2", set.GetAPIVersion())
		assert.Equal(t, "MachineSet", set.GetKind())
		assert.Equal(
			t,
			objects.Set.Spec.Template.Spec.Version,
			set.Object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)["version"],
		)
		assert.NotContains(t, set.Object, "status")
		for o, as := range map[*unstructured.Unstructured]metav1.Object{
			set: objects.Set, sent("infrastructureMachineTemplate"): objects.Infrastructure, sent("bootstrapConfigTemplate"): objects.Bootstrap,
		} {
			want := map[string]any{"name": as.GetName(), "namespace": as.GetNamespace()}
			for field, texts := range map[string]map[string]string{"labels": as.GetLabels(), "annotations": as.GetAnnotations()} {
				for key, text := range texts {
					if want[field] == nil {
						want[field] = map[string]any{}
					}
					want[field].(map[string]any)[key] = text
				}
			}
			assert.Equal(t, want, o.Object["metadata"], "no resourceVersion, no uid, no owners")
			if template, is := as.(*unstructured.Unstructured); is {
				assert.Equal(t, template.GetAPIVersion(), o.GetAPIVersion())
				assert.Equal(t, template.GetKind(), o.GetKind())
				assert.EqualValues(t, roundTripJSON(t, template.Object["spec"]), o.Object["spec"])
			}
		}
	}
}

func TestCanUpdateOnlyWithTemplatesOfTheSameKind(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(former, current *SetWithTemplates)
		want   string
	}{
		"the former infrastructure is missing":  {func(f, _ *SetWithTemplates) { f.Infrastructure = nil }, "the former MachineSet before has no infrastructure template"},
		"the current infrastructure is missing": {func(_, c *SetWithTemplates) { c.Infrastructure = nil }, "the current MachineSet after has no infrastructure template"},
		"both infrastructures are missing":      {func(f, c *SetWithTemplates) { f.Infrastructure, c.Infrastructure = nil, nil }, "the former MachineSet before has no infrastructure template"},
		"the former bootstrap is missing":       {func(f, _ *SetWithTemplates) { f.Bootstrap = nil }, "the former MachineSet before has no bootstrap template"},
		"the current bootstrap is missing":      {func(_, c *SetWithTemplates) { c.Bootstrap = nil }, "the current MachineSet after has no bootstrap template"},
		"another kind of infrastructure": {
			func(_, c *SetWithTemplates) { c.Infrastructure.SetKind("OtherMachineTemplate") },
			"the kind of the infrastructure template was ExampleMachineTemplate.infrastructure.cluster.x-k8s.io, and is OtherMachineTemplate.infrastructure.cluster.x-k8s.io now",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := startExtension(t, newResponseHandler(t, successResponse("", "", "")))
			former, current := formerSetWithTemplates(), formerSetWithTemplates()
			current.Set.Name = "after"
			c.change(&former, &current)
			a, err := CanUpdate(
				t.Context(),
				[]runtimev1.ExtensionConfig{newExtensionConfig("ext", e.configureURL)},
				nil,
				former,
				current,
			)
			require.NoError(t, err)
			assert.Equal(t, Answer{Why: c.want}, a)
			assert.Empty(t, e.receivedCalls())
		})
	}
	t.Run("another version of the same kind", func(t *testing.T) {
		t.Parallel()
		e := startExtension(t, newResponseHandler(t, successResponse("", "", "")))
		current := formerSetWithTemplates()
		current.Infrastructure.SetAPIVersion("infrastructure.cluster.x-k8s.io/v1beta1")
		a, err := CanUpdate(
			t.Context(),
			[]runtimev1.ExtensionConfig{newExtensionConfig("ext", e.configureURL)},
			nil,
			formerSetWithTemplates(),
			current,
		)
		require.NoError(t, err)
		assert.Equal(t, Answer{Possible: true}, a)
	})
}

func TestCanUpdateSelectsTheHandler(t *testing.T) {
	t.Parallel()
	selecting := func(labels map[string]string) func(*runtimev1.ExtensionConfig) {
		return func(c *runtimev1.ExtensionConfig) {
			c.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: labels}
		}
	}
	hooked := func(apiVersion, hook string) func(*runtimev1.ExtensionConfig) {
		return func(c *runtimev1.ExtensionConfig) {
			c.Status.Handlers[0].RequestHook = runtimev1.GroupVersionHook{APIVersion: apiVersion, Hook: hook}
		}
	}
	twice := func(c *runtimev1.ExtensionConfig) {
		c.Status.Handlers = append(c.Status.Handlers, newExtensionHandler("also."+c.Name))
	}
	for name, c := range map[string]struct {
		configs []runtimev1.ExtensionConfig
		want    []string
		err     string
	}{
		"no ExtensionConfig":          {},
		"one":                         {configs: []runtimev1.ExtensionConfig{newExtensionConfig("a")}, want: []string{"can-update.a"}},
		"not discovered yet":          {configs: []runtimev1.ExtensionConfig{newExtensionConfig("a", func(c *runtimev1.ExtensionConfig) { c.Status.Handlers = nil })}},
		"being deleted":               {configs: []runtimev1.ExtensionConfig{newExtensionConfig("a", func(c *runtimev1.ExtensionConfig) { capitest.AsDeletingObject(c) })}},
		"another hook":                {configs: []runtimev1.ExtensionConfig{newExtensionConfig("a", hooked("hooks.runtime.cluster.x-k8s.io/v1alpha1", "UpdateMachine"))}},
		"a hook of another group":     {configs: []runtimev1.ExtensionConfig{newExtensionConfig("a", hooked("example.com/v1alpha1", "CanUpdateMachineSet"))}},
		"no selector":                 {configs: []runtimev1.ExtensionConfig{newExtensionConfig("a", func(c *runtimev1.ExtensionConfig) { c.Spec.NamespaceSelector = nil })}, want: []string{"can-update.a"}},
		"the namespace is selected":   {configs: []runtimev1.ExtensionConfig{newExtensionConfig("a", selecting(map[string]string{"team": "web"}))}, want: []string{"can-update.a"}},
		"another one is selected":     {configs: []runtimev1.ExtensionConfig{newExtensionConfig("a", selecting(map[string]string{"team": "db"}))}},
		"one of two is selected":      {configs: []runtimev1.ExtensionConfig{newExtensionConfig("a", selecting(map[string]string{"team": "db"})), newExtensionConfig("b")}, want: []string{"can-update.b"}},
		"two in two ExtensionConfigs": {configs: []runtimev1.ExtensionConfig{newExtensionConfig("b"), newExtensionConfig("a")}, want: []string{"can-update.a", "can-update.b"}},
		"two in one":                  {configs: []runtimev1.ExtensionConfig{newExtensionConfig("a", twice)}, want: []string{"also.a", "can-update.a"}},
		"another version of the hook": {
			configs: []runtimev1.ExtensionConfig{newExtensionConfig("a", hooked("hooks.runtime.cluster.x-k8s.io/v1", "CanUpdateMachineSet"))},
			err:     "handler can-update.a serves version v1 of the hook CanUpdateMachineSet, and only v1alpha1 is supported",
		},
		"no version": {
			configs: []runtimev1.ExtensionConfig{newExtensionConfig("a", hooked("a/b/c", "CanUpdateMachineSet"))},
			err:     "handler can-update.a of the hook CanUpdateMachineSet: unexpected GroupVersion string: a/b/c",
		},
		"a selector that is not valid": {
			configs: []runtimev1.ExtensionConfig{newExtensionConfig("a", selecting(map[string]string{"team": "not valid"}))},
			err:     "spec.namespaceSelector of ExtensionConfig a: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, err := findHandlers(c.configs, map[string]string{"team": "web"})
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			var names []string
			for _, h := range found {
				names = append(names, h.fullName)
			}
			assert.Equal(t, c.want, names)
		})
	}
}

func TestCanUpdateNeedsOneHandler(t *testing.T) {
	t.Parallel()
	a, err := CanUpdate(t.Context(), nil, nil, formerSetWithTemplates(), currentSetWithTemplates())
	require.NoError(t, err)
	assert.Equal(
		t,
		Answer{Why: "no runtime extension has a handler for the hook CanUpdateMachineSet in this namespace"},
		a,
	)

	e := startExtension(t, newResponseHandler(t, successResponse("", "", "")))
	a, err = CanUpdate(
		t.Context(),
		[]runtimev1.ExtensionConfig{newExtensionConfig("b", e.configureURL), newExtensionConfig("a", e.configureURL)},
		nil,
		formerSetWithTemplates(),
		currentSetWithTemplates(),
	)
	require.EqualError(
		t,
		err,
		"2 handlers serve the hook CanUpdateMachineSet (can-update.a, can-update.b), and only one is supported",
	)
	assert.Empty(t, a)
	assert.Empty(t, e.receivedCalls())
}

func TestCanUpdateUsesTimeoutOfHandler(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[int32]time.Duration{0: 10 * time.Second, 1: time.Second, 30: 30 * time.Second} {
		found, err := findHandlers(
			[]runtimev1.ExtensionConfig{
				newExtensionConfig("a", func(c *runtimev1.ExtensionConfig) { c.Status.Handlers[0].TimeoutSeconds = seconds }),
			},
			nil,
		)
		require.NoError(t, err)
		assert.Equal(t, want, found[0].timeout)
	}
}

func TestCanUpdateReportsFailureOfExtension(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		response hooksv1.CommonResponse
		want     string
	}{
		"with a message":      {hooksv1.CommonResponse{Status: "Failure", Message: "no such\n disk"}, "the extension reports a failure: no such disk"},
		"with a long message": {hooksv1.CommonResponse{Status: "Failure", Message: strings.Repeat("é", 400)}, "the extension reports a failure: " + strings.Repeat("é", 148) + "…"},
		"without a message":   {hooksv1.CommonResponse{Status: "Failure"}, "the extension reports a failure: no message"},
		"no status":           {hooksv1.CommonResponse{}, "the status of the response is neither Success nor Failure"},
		"another status":      {hooksv1.CommonResponse{Status: secretText, Message: secretText}, "the status of the response is neither Success nor Failure"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			response := successResponse(machineSetPatch, bootstrapPatch, infrastructurePatch)
			response.CommonResponse = c.response
			e := startExtension(t, newResponseHandler(t, response))
			// failurePolicy Ignore applies only to failed calls
			for _, policy := range []func(*runtimev1.ExtensionConfig){e.configureURL, setFailurePolicyIgnore} {
				a, err := CanUpdate(
					t.Context(),
					[]runtimev1.ExtensionConfig{newExtensionConfig("ext", e.configureURL, policy)},
					nil,
					formerSetWithTemplates(),
					currentSetWithTemplates(),
				)
				require.EqualError(t, err, askErrorPrefix+c.want)
				assert.Empty(t, a)
			}
		})
	}
}

func TestCanUpdateRejectsPatchThatDoesNotApply(t *testing.T) {
	t.Parallel()
	for want, response := range map[string]hooksv1.CanUpdateMachineSetResponse{
		"MachineSet: operation 1 of the JSON patch does not apply: the object has no such field":             successResponse(`[{"op":"remove","path":"/spec/x"}]`, "", ""),
		"MachineSet: the patch makes spec.template.spec invalid":                                             successResponse(`{"spec":{"template":{"spec":{"version":7}}}}`, "", ""),
		"KubeadmConfigTemplate: the JSON patch is no list of operations":                                     successResponse("", `["`+secretText+`"]`, ""),
		"ExampleMachineTemplate: operation 2 of the JSON patch does not apply: the object has no such field": successResponse("", "", `[{"op":"test","path":"/kind","value":"ExampleMachineTemplate"},{"op":"replace","path":"/`+secretText+`","value":"`+secretText+`"}]`),
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			e := startExtension(t, newResponseHandler(t, response))
			_, err := CanUpdate(
				t.Context(),
				[]runtimev1.ExtensionConfig{newExtensionConfig("ext", e.configureURL, setFailurePolicyIgnore)},
				nil,
				formerSetWithTemplates(),
				currentSetWithTemplates(),
			)
			require.EqualError(t, err, askErrorPrefix+want)
		})
	}
}

// If the worker stops, its context ends the call. A cancelled call returns an error and no answer, with either
// failurePolicy.
func TestCanUpdateStopsWhenContextIsCancelled(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	e := startExtension(t, waitingHandler(stop))
	a, err := CanUpdate(
		ctx,
		[]runtimev1.ExtensionConfig{newExtensionConfig("ext", e.configureURL, setFailurePolicyIgnore)},
		nil,
		formerSetWithTemplates(),
		currentSetWithTemplates(),
	)
	require.ErrorIs(t, err, context.Canceled)
	assert.Empty(t, a)
}
