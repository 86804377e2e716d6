package observe

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"millwright/api/v1alpha1"
	"millwright/decide/drain"
)

// DrainRules are the drain rules of a machine, by name. The zero value has none.
type DrainRules struct {
	rules []drainRule
}

// drainRule is one rule whose selectors were read.
type drainRule struct {
	says *drain.Rule
	pods []podSelector
}

type podSelector struct {
	pod, namespace labels.Selector // nil: any
}

// DrainRules returns the rules that speak of a machine. One that cannot be read is an error: nobody knows of whom it speaks.
func (c *Cluster) DrainRules(m *v1alpha1.Machine) (DrainRules, error) {
	var found DrainRules
	for _, r := range indexed[*v1alpha1.MachineDrainRule](c.informers[Rules], cache.NamespaceIndex, m.Namespace) {
		speaks, err := ofMachine(r, m)
		if err != nil {
			return DrainRules{}, fmt.Errorf("read drain rule %s/%s: %w", r.Namespace, r.Name, err)
		}
		if !speaks {
			continue
		}
		rule := drainRule{says: &drain.Rule{Name: r.Name, Behavior: string(r.Spec.Drain.Behavior)}}
		if order := r.Spec.Drain.Order; order != nil {
			rule.says.Order = *order
		}
		for _, p := range r.Spec.Pods {
			var s podSelector
			if s.pod, err = selector(p.Selector); err == nil {
				s.namespace, err = selector(p.NamespaceSelector)
			}
			if err != nil {
				return DrainRules{}, fmt.Errorf("read drain rule %s/%s: %w", r.Namespace, r.Name, err)
			}
			rule.pods = append(rule.pods, s)
		}
		found.rules = append(found.rules, rule)
	}
	slices.SortFunc(found.rules, func(x, y drainRule) int { return cmp.Compare(x.says.Name, y.says.Name) })
	return found, nil
}

func ofMachine(r *v1alpha1.MachineDrainRule, m *v1alpha1.Machine) (bool, error) {
	for _, entry := range r.Spec.Machines {
		s, err := selector(entry.Selector)
		if err != nil {
			return false, err
		}
		if s == nil || s.Matches(labels.Set(m.Labels)) {
			return true, nil
		}
	}
	return len(r.Spec.Machines) == 0, nil
}

// selector reads a selector; nil stands for one that is left out.
func selector(s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil {
		return nil, nil
	}
	return metav1.LabelSelectorAsSelector(s)
}

// Namespaces reports whether a rule asks for the labels of namespaces.
func (d DrainRules) Namespaces() bool {
	return slices.ContainsFunc(d.rules, func(r drainRule) bool {
		return slices.ContainsFunc(r.pods, func(s podSelector) bool { return s.namespace != nil })
	})
}

// Of returns what the first rule says that matches a pod, whose namespace has these labels; nil when none matches.
func (d DrainRules) Of(pod *corev1.Pod, namespace map[string]string) *drain.Rule {
	for _, r := range d.rules {
		matches := func(s podSelector) bool {
			return (s.pod == nil || s.pod.Matches(labels.Set(pod.Labels))) && (s.namespace == nil || s.namespace.Matches(labels.Set(namespace)))
		}
		if len(r.pods) == 0 || slices.ContainsFunc(r.pods, matches) {
			return r.says
		}
	}
	return nil
}
