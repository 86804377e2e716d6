package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"millwright/devstack/component"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
)

// fieldManager is the field manager of bootstrap's server-side apply.
const fieldManager = "devstack"

// applyBootstrapObjects applies Millwright's objects to the API server, and waits until the API server serves the CRDs.
// A second call is safe.
func applyBootstrapObjects(ctx context.Context, p component.Plan) error {
	objects, err := bootstrapObjects(p)
	if err != nil || len(objects) == 0 {
		return err
	}
	a, err := newObjectApplier(p)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := a.applyObject(ctx, object); err != nil {
			return err
		}
	}
	for _, object := range objects {
		if object.GetKind() == "CustomResourceDefinition" {
			if err := a.awaitEstablishedCRD(ctx, object); err != nil {
				return err
			}
		}
	}
	return nil
}

// bootstrapObjects returns all objects that applyBootstrapObjects applies: Millwright's CRDs and RBAC (deploy/crds,
// deploy/rbac, deploy/rbac/tokens), bindings of Millwright's roles to the stack's users, Millwright's FlowSchemas and
// priority level, and the plan's own manifests. In a stack with Cluster API, bootstrapObjects also returns Cluster
// API's CRDs and webhooks, and the policy that limits what Cluster API's core may change.
func bootstrapObjects(p component.Plan) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	folders := []string{"deploy/crds", "deploy/rbac", "deploy/rbac/tokens"}
	if p.ClusterAPIFolder != "" {
		folders = append(folders, "deploy/rbac/cluster-api")
	}
	for i := range folders {
		folders[i] = filepath.Join(p.Repo, folders[i])
	}
	for _, folder := range append(folders, p.ManifestFolders...) {
		found, err := readManifests(folder)
		if err != nil {
			return nil, err
		}
		objects = append(objects, found...)
	}
	replaceClusterAPICoreUser(objects)
	bindings, err := roleBindings(objects)
	if err != nil {
		return nil, err
	}
	flows, err := flowControlObjects(p.Repo)
	if err != nil {
		return nil, err
	}
	upstream, err := clusterAPIObjects(p)
	if err != nil {
		return nil, err
	}
	return slices.Concat(objects, bindings, flows, upstream), nil
}

// replaceClusterAPICoreUser replaces the user of Cluster API's core in admission policies by core's user in the stack.
func replaceClusterAPICoreUser(objects []*unstructured.Unstructured) {
	for _, o := range objects {
		if o.GetKind() != "ValidatingAdmissionPolicy" {
			continue
		}
		for _, field := range []string{"validations", "matchConditions"} {
			all, _, _ := unstructured.NestedSlice(o.Object, "spec", field) // on an error, the list is empty
			for _, item := range all {
				if fields, isMap := item.(map[string]any); isMap {
					expression, _ := fields["expression"].(string)
					fields["expression"] = strings.ReplaceAll(expression, component.ClusterAPICoreUser, component.ClusterAPIIdentity)
				}
			}
			if len(all) > 0 {
				// this cannot fail, because the path exists
				_ = unstructured.SetNestedSlice(o.Object, all, "spec", field)
			}
		}
	}
}

// readManifests returns all objects of a folder's YAML files, in the order of the file names, except the
// kustomization.yaml. For a folder that does not exist, readManifests returns no objects.
func readManifests(folder string) ([]*unstructured.Unstructured, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	slices.Sort(paths)
	var objects []*unstructured.Unstructured
	for _, path := range paths {
		if filepath.Base(path) == "kustomization.yaml" {
			continue
		}
		found, err := readManifest(path)
		if err != nil {
			return nil, err
		}
		objects = append(objects, found...)
	}
	return objects, nil
}

func readManifest(path string) ([]*unstructured.Unstructured, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	defer func() { _ = file.Close() }()
	var objects []*unstructured.Unstructured
	for decoder := utilyaml.NewYAMLOrJSONDecoder(file, 4096); ; {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read manifest %s: %w", path, err)
		}
		if len(object.Object) > 0 { // an empty YAML document has no object
			objects = append(objects, object)
		}
	}
}

// roleBindings returns a binding for each of Millwright's roles that has users in the stack. In a real cluster, the
// roles are bound to ServiceAccounts; in the stack, every process has its own user.
func roleBindings(objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	var bindings []*unstructured.Unstructured
	for _, object := range objects {
		kind, name := object.GetKind(), object.GetName()
		users := component.UsersOfRole(name)
		if kind != "ClusterRole" && kind != "Role" || len(users) == 0 {
			continue
		}
		var subjects []rbacv1.Subject
		for _, user := range users {
			subjects = append(subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
		}
		typed := &rbacv1.ClusterRoleBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind + "Binding"},
			ObjectMeta: metav1.ObjectMeta{Name: "devstack-" + name, Namespace: object.GetNamespace()},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name},
			Subjects:   subjects,
		} // kind may also be RoleBinding, which has the same fields
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
		if err != nil {
			return nil, fmt.Errorf("bind %s to its role: %w", name, err)
		}
		bindings = append(bindings, &unstructured.Unstructured{Object: content})
	}
	return bindings, nil
}

// flowControlObjects returns Millwright's FlowSchemas and priority level. The FlowSchemas match the users of the
// stack's processes instead of ServiceAccounts, and the namespace of the stack's Leases instead of an installation's
// namespace.
func flowControlObjects(repo string) ([]*unstructured.Unstructured, error) {
	objects, err := readManifest(filepath.Join(repo, "deploy", "base", "flowcontrol.yaml"))
	if err != nil {
		return nil, err
	}
	var subjects []flowcontrolv1.Subject
	for _, user := range component.MillwrightUserNames() {
		subjects = append(
			subjects,
			flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: user}},
		)
	}
	for _, object := range objects {
		if object.GetKind() != "FlowSchema" {
			continue
		}
		var schema flowcontrolv1.FlowSchema
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &schema); err != nil {
			return nil, fmt.Errorf("read FlowSchema %s: %w", object.GetName(), err)
		}
		for i := range schema.Spec.Rules {
			rule := &schema.Spec.Rules[i]
			rule.Subjects = subjects
			for j := range rule.ResourceRules {
				if on := &rule.ResourceRules[j]; !slices.Contains(on.Namespaces, flowcontrolv1.NamespaceEvery) {
					on.Namespaces = []string{metav1.NamespaceDefault}
				}
			}
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&schema)
		if err != nil {
			return nil, fmt.Errorf("write FlowSchema %s: %w", object.GetName(), err)
		}
		object.Object = content
	}
	return objects, nil
}

// objectApplier applies objects of any kind with the admin's identity.
type objectApplier struct {
	client dynamic.Interface
	mapper meta.RESTMapper
}

func newObjectApplier(p component.Plan) (objectApplier, error) {
	config, err := clientcmd.BuildConfigFromFlags("", p.StackFolder().KubeconfigFile(component.AdminIdentity))
	if err != nil {
		return objectApplier{}, fmt.Errorf("read kubeconfig: %w", err)
	}
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return objectApplier{}, fmt.Errorf("make client: %w", err)
	}
	clients, err := p.Clientset()
	if err != nil {
		return objectApplier{}, err
	}
	groups, err := restmapper.GetAPIGroupResources(clients.Discovery())
	if err != nil {
		return objectApplier{}, fmt.Errorf("discover API: %w", err)
	}
	return objectApplier{client, restmapper.NewDiscoveryRESTMapper(groups)}, nil
}

// resourceClient returns the client for an object's kind and namespace. If the namespace is absent, resourceClient
// creates the namespace.
func (a objectApplier) resourceClient(
	ctx context.Context,
	object *unstructured.Unstructured,
) (dynamic.ResourceInterface, error) {
	kind := object.GroupVersionKind()
	mapping, err := a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, fmt.Errorf("find API of %s: %w", kind, err)
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return a.client.Resource(mapping.Resource), nil
	}
	namespace := object.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	made := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace},
	}}
	_, err = a.client.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).
		Create(ctx, made, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("create namespace %s: %w", namespace, err)
	}
	return a.client.Resource(mapping.Resource).Namespace(namespace), nil
}

func (a objectApplier) applyObject(ctx context.Context, object *unstructured.Unstructured) error {
	resource, err := a.resourceClient(ctx, object)
	if err != nil {
		return err
	}
	options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
	if _, err := resource.Apply(ctx, object.GetName(), object, options); err != nil {
		return fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// awaitEstablishedCRD waits until the CRD is Established, because only then does the API server serve the CRD's kind.
func (a objectApplier) awaitEstablishedCRD(ctx context.Context, definition *unstructured.Unstructured) error {
	resource, err := a.resourceClient(ctx, definition)
	if err != nil {
		return err
	}
	err = wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		seen, err := resource.Get(ctx, definition.GetName(), metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		conditions, _, _ := unstructured.NestedSlice(seen.Object, "status", "conditions") // a new CRD has no conditions
		return slices.ContainsFunc(conditions, func(c any) bool {
			condition, ok := c.(map[string]any)
			return ok && condition["type"] == "Established" && condition["status"] == "True"
		}), nil
	})
	if err != nil {
		return fmt.Errorf("await CRD %s: %w", definition.GetName(), err)
	}
	return nil
}
