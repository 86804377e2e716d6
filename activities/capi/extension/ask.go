// Package extension answers one question: can the machines of a former MachineSet of Cluster API be updated in place to
// the template of the current MachineSet? The package calls the hook CanUpdateMachineSet of a runtime extension, and
// compares the patched former template with the current template. The activities on MachineDeployments of Cluster API
// call the package. The package neither reads nor writes Kubernetes objects, and caches no answer.
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

// hookName is the name of the hook, as in status.handlers of an ExtensionConfig.
const hookName = "CanUpdateMachineSet"

// maxAnswerMessageBytes limits the message of an answer, and the part of an extension's message that an error repeats.
// Source: an annotation of the former set holds the answer.
const maxAnswerMessageBytes = 300

// SetWithTemplates are a MachineSet and the templates that the MachineSet references.
type SetWithTemplates struct {
	Set       *clusterv1.MachineSet      // never nil
	Bootstrap *unstructured.Unstructured // nil: the set references no bootstrap template
	// nil: the set references no infrastructure template, so its machines cannot be updated in place
	Infrastructure *unstructured.Unstructured
}

// Answer says whether the machines of the former set can be updated in place.
type Answer struct {
	Possible bool
	// Why is empty if Possible is true. Otherwise, Why is one sentence of at most 300 bytes without field values.
	Why string
}

// CanUpdate asks the runtime extension with a handler for the hook CanUpdateMachineSet whether the machines of the
// former set can be updated in place to the template of the current set. configs are all ExtensionConfigs of the
// management cluster. namespace has the labels of the sets' namespace, which spec.namespaceSelector must match. If no
// handler serves the hook, the answer is no.
//
// An error means that there is no answer: an ExtensionConfig is invalid, several handlers serve the hook, the call
// failed, or the extension reported a failure. The error contains the failure message of the response, but nothing else
// from the response or the request. If the handler's failurePolicy is Ignore, a failed call counts as a response
// without patches, and the answer says that the handler was ignored.
//
// A call times out after the handler's timeoutSeconds, or after 10 seconds if timeoutSeconds is not set. For a handler
// that Cluster API has discovered, timeoutSeconds is at most 30. CanUpdate changes nothing, so CanUpdate can
// safely be repeated.
func CanUpdate(
	ctx context.Context,
	configs []runtimev1.ExtensionConfig,
	namespace map[string]string,
	former, current SetWithTemplates,
) (Answer, error) {
	if why := notComparableReason(former, current); why != "" {
		return negativeAnswer(why), nil
	}
	handlers, err := findHandlers(configs, namespace)
	switch {
	case err != nil:
		return Answer{}, err
	case len(handlers) == 0:
		return negativeAnswer("no runtime extension has a handler for the hook " + hookName + " in this namespace"), nil
	case len(handlers) > 1:
		return Answer{}, fmt.Errorf(
			"%d handlers serve the hook %s (%s), and only one is supported",
			len(handlers),
			hookName,
			joinHandlerNames(handlers),
		)
	}
	h := handlers[0]
	a, err := h.callAndCompare(ctx, former, current)
	if err != nil {
		return Answer{}, fmt.Errorf("ask handler %s of the hook %s: %w", h.fullName, hookName, err)
	}
	return a, nil
}

// notComparableReason says why no extension is asked: a template that the comparison needs is missing, or the two
// templates have different kinds. An empty text means that the templates can be compared.
func notComparableReason(former, current SetWithTemplates) string {
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
	config          *runtimev1.ExtensionConfig
	fullName        string // full name in status.handlers, such as "can-update.my-extension"
	timeout         time.Duration
	ignoresFailures bool // the failure policy is Ignore
}

// name returns the handler's name without the name of the ExtensionConfig, as in the extension's URL.
func (h handler) name() string { return strings.TrimSuffix(h.fullName, "."+h.config.Name) }

func joinHandlerNames(handlers []handler) string {
	var names []string
	for _, h := range handlers {
		names = append(names, h.fullName)
	}
	return phrase.JoinNames(names, 5, ", ")
}

// findHandlers returns the hook's handlers of the ExtensionConfigs that select the namespace, sorted by name. An
// ExtensionConfig that is being deleted is skipped.
func findHandlers(configs []runtimev1.ExtensionConfig, namespace map[string]string) (found []handler, err error) {
	for i := range configs {
		config := &configs[i]
		selected, err := selectsNamespace(config, namespace)
		if err != nil {
			return nil, err
		}
		if !selected || config.DeletionTimestamp != nil {
			continue
		}
		for _, h := range config.Status.Handlers {
			serves, err := servesHook(h)
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

// selectsNamespace reports whether the namespaceSelector of an ExtensionConfig selects a namespace. A missing selector
// selects every namespace.
func selectsNamespace(config *runtimev1.ExtensionConfig, namespace map[string]string) (bool, error) {
	if config.Spec.NamespaceSelector == nil {
		return true, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(config.Spec.NamespaceSelector)
	if err != nil {
		return false, fmt.Errorf("spec.namespaceSelector of ExtensionConfig %s: %w", config.Name, err)
	}
	return selector.Matches(labels.Set(namespace)), nil
}

// servesHook reports whether a handler serves the hook. A handler of another version of the hook causes an error,
// because Millwright cannot read its responses.
func servesHook(h runtimev1.ExtensionHandler) (bool, error) {
	if h.RequestHook.Hook != hookName {
		return false, nil
	}
	version, err := schema.ParseGroupVersion(h.RequestHook.APIVersion)
	switch {
	case err != nil:
		return false, fmt.Errorf("handler %s of the hook %s: %w", h.Name, hookName, err)
	case version.Group != hooksv1.GroupVersion.Group:
		return false, nil
	case version != hooksv1.GroupVersion:
		return false, fmt.Errorf(
			"handler %s serves version %s of the hook %s, and only %s is supported",
			h.Name,
			version.Version,
			hookName,
			hooksv1.GroupVersion.Version,
		)
	}
	return true, nil
}

// callAndCompare calls the handler, applies the patches in the response to the former objects, and compares the result
// with the current objects.
func (h handler) callAndCompare(ctx context.Context, former, current SetWithTemplates) (Answer, error) {
	request, err := newCanUpdateRequest(former, current, h.config.Spec.Settings)
	if err != nil {
		return Answer{}, err
	}
	call, err := newPreparedCall(h, request)
	if err != nil {
		return Answer{}, err
	}
	response, failure := call.send(ctx)
	switch {
	case failure != nil && (!h.ignoresFailures || ctx.Err() != nil): // the caller's context has ended
		return Answer{}, failure
	case failure != nil:
		response = hooksv1.CanUpdateMachineSetResponse{}
	default:
		if err := responseError(response); err != nil {
			return Answer{}, err
		}
	}
	left, err := remainingDifferences(request, response)
	if err != nil {
		return Answer{}, err
	}
	if len(left) == 0 {
		return Answer{Possible: true}, nil
	}
	if failure != nil {
		return negativeAnswer(
			fmt.Sprintf("handler %s was ignored, because its failurePolicy is Ignore: %s", h.fullName, failure),
		), nil
	}
	return negativeAnswer(differencesText(left)), nil
}

func responseError(response hooksv1.CanUpdateMachineSetResponse) error {
	switch response.Status {
	case hooksv1.ResponseStatusSuccess:
		return nil
	case hooksv1.ResponseStatusFailure:
		message := strings.Join(strings.Fields(response.Message), " ") // joins the lines of the message into one line
		return fmt.Errorf(
			"the extension reports a failure: %s",
			phrase.TruncateText(cmp.Or(message, "no message"), maxAnswerMessageBytes),
		)
	default:
		return errors.New("the status of the response is neither Success nor Failure")
	}
}

func negativeAnswer(why string) Answer {
	return Answer{Why: phrase.TruncateText(why, maxAnswerMessageBytes)}
}
