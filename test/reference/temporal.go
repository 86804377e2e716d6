package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"

	"millwright/decide/request"
	"millwright/workflows/drain"
	"millwright/workflows/run"
)

const temporalPageIntro = `# What Temporal shows and takes

Written by ` + "`make generate`" + ` from ` + "`workflows/run`" + ` and ` + "`decide/request`" + `. [Workflows](../workflows.md) has the kinds of workflow and
their IDs. [The runbook](../runbook.md#make-a-request-in-temporal) says how to send a request.

## Search attributes

` + "`millwright bootstrap`" + ` makes them. A query in Temporal's UI can use each of them, for example ` + "`Stuck = true AND MachineNamespace = \"shop\"`" + `.

| name | type | meaning |
|---|---|---|
`

// temporalPage returns the page of search attributes, signals, updates and queries.
func temporalPage(repo string) (string, error) {
	folder := filepath.Join(repo, "decide", "request")
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(folder, "request.go"), nil, parser.ParseComments)
	if err != nil {
		return "", fmt.Errorf("parse the requests: %w", err)
	}
	comments := trailingComments(file)
	var page strings.Builder
	page.WriteString(temporalPageIntro)
	for _, a := range run.SearchAttributes() {
		fmt.Fprintf(&page, "| `%s` | %s | %s |\n", a.Name, a.Type, a.Help)
	}
	fmt.Fprintf(
		&page,
		"\n## Signals, updates and queries\n\n| name | is a | of the workflows | meaning |\n|---|---|---|---|\n",
	)
	takers := strings.Join(workflowsAcceptingRequests(), ", ")
	for _, row := range [][]string{
		{run.SignalChanged, "signal", "all kinds with an object of their own", "something about the object changed: decide again. The bridge sends it; nobody else has to"},
		{run.RequestMessageName, "update", takers, "an operator request (below). The answer is what was written, or why nothing was"},
		{run.RequestMessageName, "signal", takers, "the same without an answer: an event of the object reports a refusal"},
		{drain.QueryPods, "query", string(run.KindDrain) + ", " + string(run.KindClusterAPIDrain), "the pods of the node as the drain last saw them"},
	} {
		fmt.Fprintf(&page, "| `%s` | %s |\n", row[0], strings.Join(row[1:], " | "))
	}
	for _, kind := range []request.Kind{request.KindMachine, request.KindMachineDeployment} {
		fmt.Fprintf(&page, "\n## Requests for a %s\n\n| command | reason | arguments | meaning |\n|---|---|---|---|\n", kind)
		for _, spec := range request.CommandSpecs(kind) {
			needs := "optional"
			if spec.NeedsReason {
				needs = "required"
			}
			fmt.Fprintf(
				&page,
				"| `%s` | %s | %s | %s |\n",
				spec.Command,
				needs,
				requestArguments(spec),
				comments[constantName(file, string(spec.Command))],
			)
		}
	}
	page.WriteString(
		"\n## Fields of a request\n\nA request is an object of JSON with these fields.\n\n| field | meaning |\n|---|---|\n",
	)
	order := reflect.TypeFor[request.CommandOrder]()
	for field := range order.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" || name == "unread" { // the page omits this field
			continue
		}
		fmt.Fprintf(&page, "| `%s` | %s |\n", name, comments["CommandOrder."+field.Name])
	}
	return page.String(), nil
}

// workflowsAcceptingRequests returns the kinds of workflows that accept operator requests.
func workflowsAcceptingRequests() []string {
	var names []string
	for _, kind := range []run.Kind{
		run.KindMachine, run.KindDrain, run.KindMachineDeployment, run.KindRollout, run.KindClusterAPIDeployment, run.KindClusterAPIRollout,
	} {
		names = append(names, string(kind))
	}
	return names
}

// requestArguments returns the JSON names of the fields that a request with this command may have.
func requestArguments(spec request.CommandSpec) string {
	var names []string
	for _, flag := range spec.Arguments {
		words := strings.Split(flag, "-")
		for i, word := range words[1:] {
			words[i+1] = strings.ToUpper(word[:1]) + word[1:]
		}
		names = append(names, "`"+strings.Join(words, "")+"`")
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// trailingComments returns the comments at the ends of lines. The keys are the names of constants, and the types and
// names of fields.
func trailingComments(file *ast.File) map[string]string {
	found := map[string]string{}
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.ValueSpec:
			found[n.Names[0].Name] = strings.Join(strings.Fields(n.Comment.Text()), " ")
		case *ast.TypeSpec:
			fields, is := n.Type.(*ast.StructType)
			if !is {
				return true
			}
			for _, field := range fields.Fields.List {
				for _, name := range field.Names {
					found[n.Name.Name+"."+name.Name] = strings.Join(strings.Fields(field.Doc.Text()+" "+field.Comment.Text()), " ")
				}
			}
		}
		return true
	})
	return found
}

// constantName returns the name of the constant with this value.
func constantName(file *ast.File, value string) string {
	found := ""
	ast.Inspect(file, func(node ast.Node) bool {
		if spec, is := node.(*ast.ValueSpec); is && len(spec.Values) == 1 {
			if literal, is := spec.Values[0].(*ast.BasicLit); is && literal.Value == `"`+value+`"` {
				found = spec.Names[0].Name
			}
		}
		return true
	})
	return found
}
