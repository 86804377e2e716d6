//go:build integration

// Package extension is a runtime extension of Cluster API for tests. The extension pretends to update machines of the
// development provider in place. The extension reports which changes it can make, and fails when a test requests a
// failure.
package extension

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
)

// Hooks that the extension serves.
const (
	HookCanUpdateMachineSet = "CanUpdateMachineSet"
	HookUpdateMachine       = "UpdateMachine"
)

// Behaviour is how the extension answers the calls of one hook for one MachineDeployment.
type Behaviour int

// Behaviours.
const (
	// BehaviourWorks makes every change of backend.inMemory of a DevMachineTemplate, and of a Machine's version. At the
	// first call, UpdateMachine answers that core must call again after a second; the second call succeeds.
	BehaviourWorks Behaviour = iota
	// BehaviourDeclines answers CanUpdateMachineSet with success and without a patch: the extension makes no change.
	BehaviourDeclines
	// BehaviourReportsFailure answers with the status Failure and a message, like an extension that could not do what was
	// requested.
	BehaviourReportsFailure
	// BehaviourServerError answers with HTTP 500.
	BehaviourServerError
	// BehaviourDisconnects closes the connection without an answer.
	BehaviourDisconnects
	// BehaviourNeverCompletes answers each UpdateMachine with a request for another call after a second.
	BehaviourNeverCompletes
)

// Messages of the answers.
const (
	UpdatingMessage = "the virtual machine is being changed"
	RefusalMessage  = "the hypervisor is being serviced"
	FailureMessage  = "the hypervisor has lost its disk"
)

// HookCall is a call of a hook. Calls are stored in their order.
type HookCall struct {
	Hook       string
	Deployment string // name of the deployment of the Machine or the MachineSets
	ObjectName string // name of the Machine (UpdateMachine) or of the old MachineSet (CanUpdateMachineSet)
	// spec of the infrastructure machine as JSON (UpdateMachine), or name of the new MachineSet (CanUpdateMachineSet)
	DesiredState string
}

// Server is the extension. A Server is safe for concurrent use.
type Server struct {
	server *httptest.Server

	mu                   sync.Mutex
	behaviours           map[string]Behaviour // behaviour by hook and deployment
	begunUpdates         map[string]bool      // updates with exactly one call of core so far, by Machine and desired spec
	calls                []HookCall
	refusedRequestErrors []error // an error for each request that is not a valid call of a hook
}

// New starts the extension on a port of the loopback interface. The caller of New must call Close.
func New() *Server {
	s := &Server{behaviours: map[string]Behaviour{}, begunUpdates: map[string]bool{}}
	s.server = httptest.NewTLSServer(http.HandlerFunc(s.serveHook))
	return s
}

// Close stops the extension. A second call of Close does nothing.
func (s *Server) Close() { s.server.Close() }

// ExtensionConfig returns the ExtensionConfig that registers the extension for objects of one namespace. The
// ExtensionConfig has the name of the namespace. Cluster API's core reconciles the ExtensionConfig only if it has the
// label of the core's watch filter.
func (s *Server) ExtensionConfig(namespace, filterLabel, filter string) *unstructured.Unstructured {
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.server.Certificate().Raw})
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": runtimev1.GroupVersion.String(), "kind": "ExtensionConfig",
		"metadata": map[string]any{"name": namespace, "labels": map[string]any{filterLabel: filter}},
		"spec": map[string]any{
			"clientConfig":      map[string]any{"url": s.server.URL, "caBundle": base64.StdEncoding.EncodeToString(authority)},
			"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": namespace}},
		},
	}}
}

func behaviourKey(hook, deployment string) string { return hook + " " + deployment }

// SetBehaviour sets how the next calls of a hook for a deployment are answered. The default behaviour is
// BehaviourWorks.
func (s *Server) SetBehaviour(hook, deployment string, b Behaviour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.behaviours[behaviourKey(hook, deployment)] = b
}

// Calls returns the calls of a hook for a deployment until now, in their order.
func (s *Server) Calls(hook, deployment string) []HookCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(
		slices.Clone(s.calls),
		func(c HookCall) bool { return c.Hook != hook || c.Deployment != deployment },
	)
}

// RefusedRequestsError joins the errors of all requests that were not a valid call of a hook. RefusedRequestsError
// returns nil if all requests were valid.
func (s *Server) RefusedRequestsError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.refusedRequestErrors...)
}

// handlerNames has the name of the handler of each hook.
var handlerNames = map[string]string{
	HookCanUpdateMachineSet: "can-update-machine-set",
	HookUpdateMachine:       "update-machine",
}

func hookPath(hook, handler string) string {
	return strings.TrimSuffix(strings.ToLower(fmt.Sprintf("/%s/%s/%s", runtimehooksv1.GroupVersion, hook, handler)), "/")
}

func (s *Server) serveHook(w http.ResponseWriter, r *http.Request) {
	var answer any
	var err error
	switch r.URL.Path {
	case hookPath("Discovery", ""):
		answer = discoveryResponse()
	case hookPath(HookCanUpdateMachineSet, handlerNames[HookCanUpdateMachineSet]):
		answer, err = s.handleCanUpdateMachineSet(r)
	case hookPath(HookUpdateMachine, handlerNames[HookUpdateMachine]):
		answer, err = s.handleUpdateMachine(r)
	default:
		err = errors.New("no hook has this path")
	}
	if err != nil && !errors.Is(err, errExtensionBroken) {
		err = fmt.Errorf("%s %s: %w", r.Method, r.URL, err)
		s.mu.Lock()
		s.refusedRequestErrors = append(s.refusedRequestErrors, err)
		s.mu.Unlock()
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // encoding fails only if the client is gone
}

// errExtensionBroken is the answer to a call whose behaviour is BehaviourServerError.
var errExtensionBroken = errors.New("the extension is broken")

// discoveryResponse returns the hooks that the extension serves. The answer has the defaults of Cluster API: a timeout
// of 10 s, and errors are not ignored.
func discoveryResponse() *runtimehooksv1.DiscoveryResponse {
	answer := &runtimehooksv1.DiscoveryResponse{CommonResponse: successResponse()}
	answer.SetGroupVersionKind(runtimehooksv1.GroupVersion.WithKind("DiscoveryResponse"))
	for hook, name := range handlerNames {
		served := runtimehooksv1.GroupVersionHook{APIVersion: runtimehooksv1.GroupVersion.String(), Hook: hook}
		answer.Handlers = append(answer.Handlers, runtimehooksv1.ExtensionHandler{Name: name, RequestHook: served})
	}
	return answer
}

func successResponse() runtimehooksv1.CommonResponse {
	return runtimehooksv1.CommonResponse{Status: runtimehooksv1.ResponseStatusSuccess}
}

// recordCall stores a call and returns the behaviour for its answer. recordCall returns an error if the behaviour is
// BehaviourServerError.
func (s *Server) recordCall(c HookCall) (Behaviour, error) {
	s.mu.Lock()
	s.calls = append(s.calls, c)
	b := s.behaviours[behaviourKey(c.Hook, c.Deployment)]
	s.mu.Unlock()
	if b == BehaviourDisconnects {
		panic(http.ErrAbortHandler) // this panic closes the connection
	}
	if b == BehaviourServerError {
		return b, errExtensionBroken
	}
	return b, nil
}

func (s *Server) handleCanUpdateMachineSet(r *http.Request) (*runtimehooksv1.CanUpdateMachineSetResponse, error) {
	var in runtimehooksv1.CanUpdateMachineSetRequest
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return nil, err
	}
	former, wanted := &in.Current.MachineSet, &in.Desired.MachineSet
	b, err := s.recordCall(
		HookCall{HookCanUpdateMachineSet, former.Labels[clusterv1.MachineDeploymentNameLabel], former.Name, wanted.Name},
	)
	if err != nil {
		return nil, err
	}
	answer := &runtimehooksv1.CanUpdateMachineSetResponse{CommonResponse: successResponse()}
	answer.SetGroupVersionKind(runtimehooksv1.GroupVersion.WithKind("CanUpdateMachineSetResponse"))
	if b == BehaviourDeclines {
		return answer, nil
	}
	if b == BehaviourReportsFailure {
		answer.Status, answer.Message = runtimehooksv1.ResponseStatusFailure, RefusalMessage
		return answer, nil
	}
	backend, err := desiredBackend(
		in.Current.InfrastructureMachineTemplate.Raw,
		in.Desired.InfrastructureMachineTemplate.Raw,
	)
	if err != nil {
		return nil, err
	}
	if backend != nil {
		answer.InfrastructureMachineTemplatePatch, err = newPatch(runtimehooksv1.JSONPatchType, []any{
			map[string]any{"op": "add", "path": "/spec/template/spec/backend/inMemory", "value": backend},
		})
		if err != nil {
			return nil, err
		}
	}
	if version := wanted.Spec.Template.Spec.Version; version != former.Spec.Template.Spec.Version {
		answer.MachineSetPatch, err = newPatch(runtimehooksv1.JSONMergePatchType, map[string]any{
			"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"version": version}}},
		})
	}
	return answer, err
}

// desiredBackend returns the desired backend.inMemory of a template of the development provider. desiredBackend returns
// nil if the backend does not change, or if the template has another kind.
func desiredBackend(current, desired []byte) (any, error) {
	var backends [2]any
	for i, text := range [][]byte{current, desired} {
		var template unstructured.Unstructured
		if err := template.UnmarshalJSON(text); err != nil {
			return nil, err
		}
		if template.GetKind() != "DevMachineTemplate" {
			return nil, nil
		}
		// an error means that the template lacks the field
		backends[i], _, _ = unstructured.NestedFieldNoCopy(template.Object, "spec", "template", "spec", "backend", "inMemory")
	}
	if fmt.Sprint(backends[0]) == fmt.Sprint(backends[1]) { // fmt prints maps in the order of their keys
		return nil, nil
	}
	return backends[1], nil
}

func newPatch(kind runtimehooksv1.PatchType, content any) (runtimehooksv1.Patch, error) {
	text, err := json.Marshal(content)
	return runtimehooksv1.Patch{PatchType: kind, Patch: text}, err
}

func (s *Server) handleUpdateMachine(r *http.Request) (*runtimehooksv1.UpdateMachineResponse, error) {
	var in runtimehooksv1.UpdateMachineRequest
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return nil, err
	}
	var infra unstructured.Unstructured
	if err := infra.UnmarshalJSON(in.Desired.InfrastructureMachine.Raw); err != nil {
		return nil, err
	}
	spec, err := json.Marshal(infra.Object["spec"])
	if err != nil {
		return nil, err
	}
	m := &in.Desired.Machine
	b, err := s.recordCall(
		HookCall{HookUpdateMachine, m.Labels[clusterv1.MachineDeploymentNameLabel], m.Name, string(spec)},
	)
	if err != nil {
		return nil, err
	}
	answer := &runtimehooksv1.UpdateMachineResponse{
		CommonRetryResponse: runtimehooksv1.CommonRetryResponse{CommonResponse: successResponse()},
	}
	answer.SetGroupVersionKind(runtimehooksv1.GroupVersion.WithKind("UpdateMachineResponse"))
	if b == BehaviourReportsFailure {
		answer.Status, answer.Message = runtimehooksv1.ResponseStatusFailure, FailureMessage
		return answer, nil
	}
	if b == BehaviourNeverCompletes ||
		s.isFirstCall(fmt.Sprintf("%s/%s %s %s", m.Namespace, m.Name, m.Spec.Version, spec)) {
		answer.RetryAfterSeconds, answer.Message = 1, UpdatingMessage
	}
	return answer, nil
}

// isFirstCall reports whether this call is the first of the two calls for an update. A third call counts as the first
// call of a new update.
func (s *Server) isFirstCall(update string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begunUpdates[update] = !s.begunUpdates[update]
	return s.begunUpdates[update]
}

// IsDiscovered reports whether Cluster API's core has discovered the hooks of an ExtensionConfig, and returns the
// message of the discovery condition.
func IsDiscovered(config *unstructured.Unstructured) (bool, string) {
	var c runtimev1.ExtensionConfig
	text, err := config.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		return false, err.Error()
	}
	for _, condition := range c.Status.Conditions {
		if condition.Type == runtimev1.ExtensionConfigDiscoveredCondition {
			return condition.Status == metav1.ConditionTrue && len(c.Status.Handlers) == len(handlerNames), condition.Message
		}
	}
	return false, "no condition"
}
