package activities

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/decide/drain"
	"millwright/observe"
)

// namespaces holds the labels of those that were read.
type namespaces map[string]map[string]string

// podFacts returns the facts of pods but for their budgets, with what the drain rules of their node's machine say of each. Labels of namespaces are
// read live, each once, and only where a rule asks for them. Where pods are deleted whatever blocks them, a rule that cannot
// be read is none; else it is an error, since nobody knows of whom it speaks.
func (a *Activities) podFacts(ctx context.Context, machine Ref, pods []*corev1.Pod, known namespaces, means drain.Means) ([]drain.Pod, error) {
	var rules observe.DrainRules
	if m, found := a.Cluster.Machine(machine.Key()); found {
		var err error
		if rules, err = a.Cluster.DrainRules(m); err != nil && means == drain.Evict {
			return nil, err
		}
	}
	facts := make([]drain.Pod, 0, len(pods))
	for _, pod := range pods {
		if _, read := known[pod.Namespace]; !read && rules.Namespaces() {
			ns, err := a.Cluster.Target(machine.Namespace).CoreV1().Namespaces().Get(ctx, pod.Namespace, metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err): // it is going, and takes its pods along
				known[pod.Namespace] = nil
			case err != nil:
				return nil, fmt.Errorf("get namespace %s, for a drain rule: %w", pod.Namespace, err)
			default:
				known[pod.Namespace] = ns.Labels
			}
		}
		f := observe.PodFacts(pod, nil)
		f.Rule = rules.Of(pod, known[pod.Namespace])
		facts = append(facts, f)
	}
	return facts, nil
}

// goes reports whether a drain has anything to do with a pod.
func goes(pod drain.Pod) bool { return drain.Treat(pod).Do != drain.Skip }
