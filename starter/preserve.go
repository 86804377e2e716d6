package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/verb"
)

func preserveCommand(d door) *cobra.Command {
	f := &drains{door: d}
	o, stop := newOrder(verb.Preserve), false
	c := &cobra.Command{
		Use: "preserve MACHINE", Short: "Keep a machine for people to look at, or no longer",
		Long: `preserve keeps a machine from now on: its set does not replace it when it fails, and the cluster autoscaler leaves its node. It
lasts for the machine's machinePreserveTimeout, 96 hours by default, and is not made longer by asking again. --stop ends it, and
keeps the machine's set from preserving it by itself.

It writes an annotation on the Machine that has no room for who and why: these are in an event of the Machine. A machine is given
as NAMESPACE/NAME, or as NAME with --namespace.`,
		Example: `  starter preserve shop/m-1 --reason "what is in its memory?"
  starter preserve shop/m-1 --stop`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if stop {
				o.Verb = verb.Unpreserve
			}
			key, err := f.key(c, args[0])
			if err != nil {
				return err
			}
			machines, err := f.machines(f.kubeconfig)
			if err != nil {
				return err
			}
			events, err := f.events(f.kubeconfig)
			if err != nil {
				return err
			}
			return o.carryOut(c.Context(), clerk{machines: machines, events: events, now: f.now, in: c.InOrStdin(), out: c.OutOrStdout()}, key)
		},
	}
	c.Flags().StringVar(&f.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig of the cluster that holds the machines")
	c.Flags().StringVarP(&f.namespace, "namespace", "n", metav1.NamespaceDefault, "namespace of the machine")
	c.Flags().BoolVar(&stop, "stop", false, "keep it no longer")
	signed(c, &o.Reason, &o.Actor)
	return c
}

// keeps says what a wish for preservation, or against it, brings about.
func (o order) keeps(m *v1alpha1.Machine, now time.Time) string {
	end := m.Status.CurrentStatus.PreserveExpiryTime
	switch {
	case o.Verb == verb.Unpreserve && end == nil:
		return "nothing, as the machine is not preserved; when it fails, its set does not preserve it either"
	case o.Verb == verb.Unpreserve:
		return "the machine is kept no longer: if it has failed, it is replaced"
	case end != nil:
		return "the machine stays preserved until " + when(end.Time, now) + ", which does not move"
	default:
		return fmt.Sprintf("the machine is preserved for %s: neither its set nor the cluster autoscaler removes it", m.Spec.EffectivePreserveTimeout())
	}
}

// reasonGiven is the reason of the event that tells of a verb. Source: the activity that gives verbs uses the same.
const reasonGiven = "VerbGiven"

// record tells of an order in an event of the machine, where the annotation has no room for who wants it and why.
func (o order) record(ctx context.Context, c clerk, m *v1alpha1.Machine, written string) error {
	if c.events == nil {
		return nil
	}
	now := metav1.NewTime(c.now())
	_, err := c.events.Events(m.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, GenerateName: m.Name + "."},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Machine", Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
		},
		Type: corev1.EventTypeNormal, Reason: reasonGiven, Message: o.Wish() + "; " + written,
		Source: corev1.EventSource{Component: "millwright-starter"}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("the machine was written, and no event tells who wanted it: %w", err)
	}
	return nil
}
