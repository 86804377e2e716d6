package rollout

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// gitOpsManagers maps the beginning of a field manager's name to its tool, which applies the spec in Git again.
// Sources: Argo CD's default field manager, and the names of the controllers of Flux.
var gitOpsManagers = []struct{ prefix, tool string }{
	{"argocd-", "Argo CD"}, {"kustomize-controller", "Flux"}, {"helm-controller", "Flux"},
}

// gitOpsWarning warns that a GitOps tool owns the template of a deployment and will undo an edit of the template; empty
// if the managed fields show no GitOps tool.
func gitOpsWarning(o metav1.Object) string {
	for _, entry := range o.GetManagedFields() {
		if entry.Subresource != "" || entry.FieldsV1 == nil ||
			!strings.Contains(entry.FieldsV1.GetRawString(), `"f:template"`) {
			continue
		}
		for _, m := range gitOpsManagers {
			if strings.HasPrefix(entry.Manager, m.prefix) {
				return fmt.Sprintf(
					"%s manages the template (field manager %s): it applies the template in Git again, and the rollout begins again; "+
						"change the template in Git, or use --pin", m.tool, entry.Manager,
				)
			}
		}
	}
	return ""
}
