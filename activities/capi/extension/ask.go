// Package extension answers one question: can the machines of a former MachineSet of Cluster API be brought to the
// template of the current one in place? It asks a runtime extension of Cluster API, with the hook CanUpdateMachineSet,
// and compares what the extension says with what is wanted. The activities on MachineDeployments of Cluster API call
// it. It reads no object, changes none, and remembers no answer.
package extension

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"millwright/decide/phrase"
)

// hook is the name of the hook, as in status.handlers of an ExtensionConfig.
const hook = "CanUpdateMachineSet"

// longestText bounds an answer's sentence, and what an error repeats of an extension's message, in bytes. Source: an
// annotation of the former set holds the answer.
const longestText = 300

// Objects are a MachineSet with the templates that it names.
type Objects struct {
	Set            *clusterv1.MachineSet      // never nil
	Bootstrap      *unstructured.Unstructured // nil: the set names none
	Infrastructure *unstructured.Unstructured // nil: the set names none; such machines are not updated in place
}

// Answer says whether the machines of the former set can be updated in place.
type Answer struct {
	Possible bool
	// why not, in one sentence of at most 300 bytes; it holds no values of objects. Empty if it is possible
	Why string
}

// Ask asks the runtime extension that has a handler for the hook CanUpdateMachineSet whether it can bring the machines
// of the former set to the template of the current one. configs are all ExtensionConfigs of the management cluster.
// namespace holds the labels of the namespace of the sets, for spec.namespaceSelector. Without such a handler the
// answer is no.
//
// An error means that there is no answer: an ExtensionConfig is wrong, several handlers serve the hook, the call
// failed, or the extension reported a failure. It repeats nothing of the request and of the response except the message
// of that failure. If the handler's failurePolicy is Ignore, a call that fails counts as a response without patches,
// and the answer says so.
//
// A call ends after timeoutSeconds of the handler: at most 30 with a handler that Cluster API has discovered, and 10 if
// it says none. Nothing is changed, so it is safe to ask twice.
func Ask(
	ctx context.Context,
	configs []runtimev1.ExtensionConfig,
	namespace map[string]string,
	former, current Objects,
) (Answer, error) {
	if why := unlike(former, current); why != "" {
		return answer(why), nil
	}
	handlers, err := handlers(configs, namespace)
	switch {
	case err != nil:
		return Answer{}, err
	case len(handlers) == 0:
		return answer("no runtime extension has a handler for the hook " + hook + " in this namespace"), nil
	case len(handlers) > 1:
		return Answer{}, fmt.Errorf(
			"%d handlers serve the hook %s (%s), and only one is supported",
			len(handlers),
			hook,
			names(handlers),
		)
	}
	h := handlers[0]
	a, err := h.ask(ctx, former, current)
	if err != nil {
		return Answer{}, fmt.Errorf("ask handler %s of the hook %s: %w", h.fullName, hook, err)
	}
	return a, nil
}

// unlike says why no extension is asked: templates that a comparison needs are missing, or are of another kind. An
// empty text means that they can be compared.
func unlike(former, current Objects) string {
	for _, t := range []struct {
		what     string
		of, with *unstructured.Unstructured
		required bool
	}{
		{"infrastructure", former.Infrastructure, current.Infrastructure, true},
		{"bootstrap", former.Bootstrap, current.Bootstrap, false},
	} {
		switch {
		case t.of == nil && t.with == nil && !t.required:
		case t.of == nil:
			return fmt.Sprintf("the former MachineSet %s has no %s template", former.Set.Name, t.what)
		case t.with == nil:
			return fmt.Sprintf("the current MachineSet %s has no %s template", current.Set.Name, t.what)
		case t.of.GroupVersionKind().GroupKind() != t.with.GroupVersionKind().GroupKind():
			return fmt.Sprintf(
				"the kind of the %s template was %s, and is %s now",
				t.what,
				t.of.GroupVersionKind().GroupKind(),
				t.with.GroupVersionKind().GroupKind(),
			)
		}
	}
	return ""
}

// handler is an entry of status.handlers with its ExtensionConfig.
type handler struct {
	config    *runtimev1.ExtensionConfig
	fullName  string // as in status.handlers, such as "can-update.my-extension"
	timeout   time.Duration
	ignorable bool // the failure policy is Ignore
}

// name is the handler's name as the extension knows it.
func (h handler) name() string { return strings.TrimSuffix(h.fullName, "."+h.config.Name) }

func names(handlers []handler) string {
	var names []string
	for _, h := range handlers {
		names = append(names, h.fullName)
	}
	return phrase.List(names, 5, ", ")
}

// handlers returns the handlers for the hook of the ExtensionConfigs that select a namespace, by name. An
// ExtensionConfig that is being deleted has none.
func handlers(configs []runtimev1.ExtensionConfig, namespace map[string]string) (found []handler, err error) {
	for i := range configs {
		config := &configs[i]
		selected, err := selects(config, namespace)
		if err != nil {
			return nil, err
		}
		if !selected || config.DeletionTimestamp != nil {
			continue
		}
		for _, h := range config.Status.Handlers {
			serves, err := serves(h)
			if err != nil {
				return nil, err
			}
			if serves {
				seconds := cmp.Or(h.TimeoutSeconds, hooksv1.DefaultHandlersTimeoutSeconds)
				found = append(
					found,
					handler{config, h.Name, time.Duration(seconds) * time.Second, h.FailurePolicy == runtimev1.FailurePolicyIgnore},
				)
			}
		}
	}
	slices.SortFunc(found, func(a, b handler) int { return cmp.Compare(a.fullName, b.fullName) })
	return found, nil
}

// selects reports whether the namespaceSelector of an ExtensionConfig selects a namespace. No selector selects all.
func selects(config *runtimev1.ExtensionConfig, namespace map[string]string) (bool, error) {
	if config.Spec.NamespaceSelector == nil {
		return true, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(config.Spec.NamespaceSelector)
	if err != nil {
		return false, fmt.Errorf("spec.namespaceSelector of ExtensionConfig %s: %w", config.Name, err)
	}
	return selector.Matches(labels.Set(namespace)), nil
}

// serves reports whether a handler serves the hook. One that serves another version of the hook is an error: it would
// be asked in vain.
func serves(h runtimev1.ExtensionHandler) (bool, error) {
	if h.RequestHook.Hook != hook {
		return false, nil
	}
	version, err := schema.ParseGroupVersion(h.RequestHook.APIVersion)
	switch {
	case err != nil:
		return false, fmt.Errorf("handler %s of the hook %s: %w", h.Name, hook, err)
	case version.Group != hooksv1.GroupVersion.Group:
		return false, nil
	case version != hooksv1.GroupVersion:
		return false, fmt.Errorf(
			"handler %s serves version %s of the hook %s, and only %s is supported",
			h.Name,
			version.Version,
			hook,
			hooksv1.GroupVersion.Version,
		)
	}
	return true, nil
}

// ask calls the handler, applies the patches of its response to the former objects, and compares them with the current
// ones.
func (h handler) ask(ctx context.Context, former, current Objects) (Answer, error) {
	request, err := newRequest(former, current, h.config.Spec.Settings)
	if err != nil {
		return Answer{}, err
	}
	call, err := newCall(h, request)
	if err != nil {
		return Answer{}, err
	}
	response, failure := call.do(ctx)
	switch {
	case failure != nil && (!h.ignorable || ctx.Err() != nil): // the caller has stopped asking
		return Answer{}, failure
	case failure != nil:
		response = hooksv1.CanUpdateMachineSetResponse{}
	default:
		if err := failed(response); err != nil {
			return Answer{}, err
		}
	}
	left, err := remaining(request, response)
	if err != nil {
		return Answer{}, err
	}
	if len(left) == 0 {
		return Answer{Possible: true}, nil
	}
	if failure != nil {
		return answer(
			fmt.Sprintf("handler %s was ignored, because its failurePolicy is Ignore: %s", h.fullName, failure),
		), nil
	}
	return answer(sentence(left)), nil
}

// failed returns the failure that an extension reported.
func failed(response hooksv1.CanUpdateMachineSetResponse) error {
	switch response.Status {
	case hooksv1.ResponseStatusSuccess:
		return nil
	case hooksv1.ResponseStatusFailure:
		message := strings.Join(strings.Fields(response.Message), " ") // one line
		return fmt.Errorf("the extension reports a failure: %s", phrase.Cut(cmp.Or(message, "no message"), longestText))
	default:
		return errors.New("the status of the response is neither Success nor Failure")
	}
}

func answer(why string) Answer { return Answer{Why: phrase.Cut(why, longestText)} }
