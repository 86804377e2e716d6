// Package replace has the command that replaces one machine: it deletes the machine, and the machine's set makes a new
// one.
package replace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/decide/request"
	"millwright/starter/kubecli"
)

// replaceCommand is the command `millwright replace` with its flags.
type replaceCommand struct {
	kubecli.ObjectFlags
	request    kubecli.Request // actor and reason
	isDryRun   bool
	withoutSet bool // a machine that no set controls may be deleted
}

// Command returns the command replace.
func Command(e kubecli.Environment) *cobra.Command {
	x := &replaceCommand{ObjectFlags: kubecli.ObjectFlags{Environment: e, Kind: request.KindMachine}}
	c := &cobra.Command{
		Use:   "replace MACHINE",
		Short: "Delete a machine, so that its set makes a new one",
		Long: `replace deletes a machine. Its node is drained as with every deletion, so disruption budgets count, and its set makes a new machine from the
set's template. replace says both before it deletes. It deletes only the machine that it has read, not a later one of the same name.

replace works outside the replacement budget of the deployment (maxReplacements). It refuses a machine that is being deleted already, a machine
that is preserved, and a machine that no MachineSet controls, because nothing would replace it: with --without-set it deletes such a machine, too.
--dry-run says what would happen, lets the API server check the deletion, and deletes nothing.

The actor and --reason go into an event on the machine. Of Cluster API, every machine that a MachineSet controls can be replaced. If both API
groups have a machine of the name, give machine.cluster.x-k8s.io/NAMESPACE/NAME or machine.machine.sapcloud.io/NAMESPACE/NAME.`,
		Example: `  millwright replace shop/web-7f9c4-x2b8q --reason "its disk is slow"
  millwright replace mc web-7f9c4-x2b8q -n shop --dry-run`,
		Args:              kubecli.ObjectArgs,
		ValidArgsFunction: x.CompleteName,
		RunE:              func(c *cobra.Command, args []string) error { return x.run(c, args) },
	}
	x.RegisterFlags(c)
	x.request.RegisterActorFlags(c)
	c.Flags().BoolVar(&x.isDryRun, "dry-run", false, "say what would happen, and delete nothing")
	c.Flags().BoolVar(&x.withoutSet, "without-set", false, "delete the machine although no set makes a new one")
	return c
}

func (x *replaceCommand) run(c *cobra.Command, args []string) error {
	ctx, out := c.Context(), c.OutOrStdout()
	key, err := x.ParseKey(c, args)
	if err != nil {
		return err
	}
	clients, err := x.NewClients(x.ClusterAccess)
	if err != nil {
		return err
	}
	t, err := findTarget(ctx, clients, x.Group, key)
	if err != nil {
		return err
	}
	if why := t.facts.refusalReason(x.withoutSet, x.Now()); why != "" {
		return errors.New(why)
	}
	for _, line := range t.facts.effects() {
		_, _ = fmt.Fprintln(out, line)
	}
	if err := t.delete(ctx, x.isDryRun); err != nil {
		return err
	}
	if x.isDryRun {
		_, err := fmt.Fprintln(out, "Dry run: the API server accepts the deletion, and nothing was deleted.")
		return err
	}
	_, _ = fmt.Fprintf(out, "machine %s: deletion requested\n", t.facts.Name)
	writeFollowCommands(out, t.facts)
	return t.createEvent(ctx, clients, x.summary(ctx, clients), x.Now())
}

// writeFollowCommands writes the commands that show what the deletion does.
func writeFollowCommands(out io.Writer, f facts) {
	_, _ = fmt.Fprintf(out, "To follow it: %s\n", f.FollowCommand)
	if f.SetArgument != "" {
		_, _ = fmt.Fprintf(out, "To see the new machine: millwright explain %s\n", f.SetArgument)
	}
}

// summary returns the sentence of the event: who asked for the replacement, and why.
func (x *replaceCommand) summary(ctx context.Context, clients kubecli.Clients) string {
	actor := cmp.Or(x.request.Actor, kubecli.ActorName(ctx, clients), "somebody")
	text := actor + " requested replace"
	if reason := strings.Join(strings.Fields(x.request.Reason), " "); reason != "" {
		text += ": " + reason
	}
	return text
}

// delete deletes the machine that was read. In a dry run, the API server makes all checks and deletes nothing.
func (t target) delete(ctx context.Context, isDryRun bool) error {
	uid := t.object.GetUID()
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
	if isDryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	switch err := t.send(ctx, t.object.GetName(), options); {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("machine %s is gone meanwhile: nothing was deleted", t.facts.Name)
	case apierrors.IsConflict(err):
		return fmt.Errorf("machine %s was replaced by another one of that name meanwhile: nothing was deleted", t.facts.Name)
	case err != nil:
		return fmt.Errorf("delete machine %s: %w", t.facts.Name, err)
	}
	return nil
}
