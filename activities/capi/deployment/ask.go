package deployment

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"millwright/activities/capi/extension"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/rollout"
	"millwright/observe/capi"
	"millwright/observe/capi/deployment"
)

// AskExtensionInput names the former sets for which AskExtension asks whether an extension can update their machines
// in place.
type AskExtensionInput struct {
	Deployment kube.Ref
	Sets       []rollout.ObjectTarget
}

// AskExtension asks a runtime extension whether it can update the machines of former sets in place to the template of
// the current set. AskExtension writes each answer, or the failure, into an annotation of the former set. AskExtension
// returns a Conflict if a former set changed since the decision, or if the deployment has no current set. AskExtension
// is not idempotent: each run asks again.
func (a *Activities) AskExtension(ctx context.Context, in AskExtensionInput) (kube.MinVersions, error) {
	d, err := a.clusterAPIKindAdapter().ReadDeploymentAtVersion(ctx, in.Deployment, "")
	if err != nil {
		return nil, err
	}
	tree, err := deployment.ReadLiveTreeWithoutMachines(ctx, a.Cache, d)
	if err != nil {
		return nil, err
	}
	now := kube.NewServerClock(ctx).Now()
	current := tree.CurrentSet(now)
	if current == nil || d.DeletionTimestamp != nil {
		return nil, kube.ConflictError(in.Deployment)
	}
	extensions, err := a.listExtensionConfigs(ctx)
	if err != nil {
		return nil, err
	}
	namespace, err := a.readNamespaceLabels(ctx, d.Namespace)
	if err != nil {
		return nil, err
	}
	desired, err := a.readTemplates(ctx, current)
	if err != nil {
		return nil, err
	}
	sets := machineSetClient{a.Cache.Client().MachineSets(d.Namespace)}
	return kube.WriteInParallel(capi.SetsResource, len(in.Sets), func(i int) (string, error) {
		t := in.Sets[i]
		ref := kube.Ref{Namespace: d.Namespace, Name: t.Name, UID: t.UID}
		set, err := kube.ReadLiveAtVersion(ctx, sets, "machineset", ref, t.Version)
		if err != nil {
			return "", err
		}
		former, err := a.readTemplates(ctx, set)
		if err != nil {
			return "", err
		}
		answer := rollout.ExtensionAnswer{TargetSetUID: string(current.UID), RequestedAt: now}
		switch said, err := extension.CanUpdate(ctx, extensions, namespace, former, desired); {
		case err != nil && ctx.Err() != nil:
			return "", err // Temporal retries the attempt
		case err != nil:
			answer.Failed, answer.Why = true, kube.ShortenMessage(err.Error())
		default:
			answer.Possible, answer.Why = said.Possible, said.Why
		}
		written, err := kube.PatchObject(ctx, sets, set, map[string]any{"metadata": map[string]any{
			"annotations": map[string]any{v1alpha1.AnnotationInPlaceAnswer: deployment.ExtensionAnswerText(answer)},
		}})
		if err != nil {
			return "", kube.ClassifyWriteError(ctx, ref, err)
		}
		if !answer.Possible {
			a.Kube.Recorder.Event(
				d,
				eventTypeOfAnswer(answer),
				vocabulary.ReasonNotUpdatedInPlace,
				fmt.Sprintf("MachineSet %s: %s", set.Name, answer.Why),
			)
		}
		return written.ResourceVersion, nil
	})
}

func eventTypeOfAnswer(a rollout.ExtensionAnswer) string {
	if a.Failed {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}

// listExtensionConfigs lists the ExtensionConfigs; the list is empty if their kind is not installed.
func (a *Activities) listExtensionConfigs(ctx context.Context) ([]runtimev1.ExtensionConfig, error) {
	list, err := a.Cache.Client().
		ProviderObjects.Resource(runtimev1.GroupVersion.WithResource("extensionconfigs")).
		List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list extensionconfigs: %w", err)
	}
	all := make([]runtimev1.ExtensionConfig, len(list.Items))
	for i := range list.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &all[i]); err != nil {
			return nil, fmt.Errorf("read extensionconfig %s: %w", list.Items[i].GetName(), err)
		}
	}
	return all, nil
}

// readNamespaceLabels reads the labels of a namespace. The namespaceSelector of an ExtensionConfig selects namespaces
// by their labels.
func (a *Activities) readNamespaceLabels(ctx context.Context, name string) (map[string]string, error) {
	o, err := a.Cache.Client().
		ProviderObjects.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).
		Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get namespace %s: %w", name, err)
	}
	return o.GetLabels(), nil
}

// readTemplates reads the templates of a set from the API server. A template that does not exist is nil.
func (a *Activities) readTemplates(ctx context.Context, set *clusterv1.MachineSet) (extension.SetWithTemplates, error) {
	objects, spec := extension.SetWithTemplates{Set: set}, &set.Spec.Template.Spec
	templates, err := a.Cache.LiveTemplates(ctx, set.Namespace, spec)
	for _, t := range templates {
		if t.Ref == spec.InfrastructureRef {
			objects.Infrastructure = t.Object
		} else {
			objects.Bootstrap = t.Object
		}
	}
	return objects, err
}
