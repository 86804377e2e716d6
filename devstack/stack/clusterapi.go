package stack

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"millwright/devstack/component"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// clusterAPIObjects returns the CRDs and webhook configurations of the chosen programs of Cluster API, changed so that
// the API server calls the programs on this machine.
func clusterAPIObjects(p component.Plan) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, name := range component.ClusterAPINames() {
		if !slices.Contains(p.Components, name) {
			continue
		}
		folder := filepath.Join(p.ClusterAPIFolder, "config", name)
		objects, err := readManifests(folder)
		if err != nil {
			return nil, err
		}
		labels, err := readCRDLabels(filepath.Join(folder, "kustomization.yaml"))
		if err != nil {
			return nil, err
		}
		authority, err := os.ReadFile(p.StackFolder().ClusterAPICACertificateFile())
		if err != nil {
			return nil, fmt.Errorf("read the CA of Cluster API's webhooks: %w", err)
		}
		w := webhookServer{name: name, url: p.ClusterAPIWebhooksURL(name), caCertificate: authority}
		for _, object := range objects {
			if err := w.redirectWebhooks(object, labels); err != nil {
				return nil, fmt.Errorf("direct %s %s to %s: %w", object.GetKind(), object.GetName(), name, err)
			}
		}
		all = append(all, objects...)
	}
	return all, nil
}

// readCRDLabels returns the labels that a kustomization gives to CRDs. Cluster API's core reads from the labels of CRDs
// which versions of a provider's kinds it may use.
func readCRDLabels(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read labels of CRDs: %w", err)
	}
	var kustomization struct {
		Labels []struct{ Pairs map[string]string }
	}
	if err := yaml.Unmarshal(text, &kustomization); err != nil {
		return nil, fmt.Errorf("read labels of CRDs in %s: %w", path, err)
	}
	labels := map[string]string{}
	for _, l := range kustomization.Labels {
		maps.Copy(labels, l.Pairs)
	}
	return labels, nil
}

// webhookServer describes the webhook server of one program of Cluster API.
type webhookServer struct {
	name          string // name of the program
	url           string // base URL of the webhooks
	caCertificate []byte // CA certificate of the webhooks, as PEM
}

// redirectWebhooks changes a CRD or a webhook configuration of upstream's manifests. After the change, the API server
// calls the program on this machine for CRD conversions and for each webhook. Every CRD gets the labels. A webhook
// configuration gets the program's name as a prefix, because the manifests of all programs use the same name.
func (w webhookServer) redirectWebhooks(object *unstructured.Unstructured, labels map[string]string) error {
	switch kind := object.GetKind(); kind {
	case "CustomResourceDefinition":
		object.SetLabels(labels)
		versions, _, err := unstructured.NestedSlice(object.Object, "spec", "versions")
		if err != nil || len(versions) < 2 {
			return err
		}
		return unstructured.SetNestedMap(object.Object, map[string]any{
			"strategy": "Webhook",
			"webhook":  map[string]any{"conversionReviewVersions": []any{"v1"}, "clientConfig": w.clientConfig("/convert")},
		}, "spec", "conversion")
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		object.SetName(w.name + "-" + object.GetName())
		hooks, _, err := unstructured.NestedSlice(object.Object, "webhooks")
		if err != nil {
			return err
		}
		for _, hook := range hooks {
			fields, ok := hook.(map[string]any)
			// NestedString returns an error if the field has another type; found is then false.
			path, found, _ := unstructured.NestedString(fields, "clientConfig", "service", "path")
			if !ok || !found {
				return errors.New("a webhook has no path of a service")
			}
			fields["clientConfig"] = w.clientConfig(path)
		}
		return unstructured.SetNestedSlice(object.Object, hooks, "webhooks")
	default:
		return errors.New("no object of this kind is expected")
	}
}

func (w webhookServer) clientConfig(path string) map[string]any {
	return map[string]any{"url": w.url + path, "caBundle": base64.StdEncoding.EncodeToString(w.caCertificate)}
}
