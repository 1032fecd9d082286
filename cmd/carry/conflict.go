package main

import (
	"context"
	"fmt"

	"workload.openshift.io/kubernetes/cmd/carry/internal/patch"
)

// misplacedError is that of a hunk that git would apply, and that must not be.
type misplacedError struct{ text string }

func (e misplacedError) Error() string { return e.text }

// place checks that each hunk fits into one place of its file, and that this is in the
// declaration that the patch names. git would take the nearest of several.
func (t *tree) place(ctx context.Context, p patch.Patch, commit string) error {
	for _, file := range p.Files {
		lines, err := t.fileAt(ctx, commit, file.Path)
		if err != nil {
			return err
		}
		hunks, err := file.Hunks()
		if err != nil {
			return fmt.Errorf("%s: %w", p.Path, err)
		}
		for _, h := range hunks {
			places := h.Places(lines)
			if len(places) > 1 {
				return misplacedError{fmt.Sprintf("%s:%d: fits into %d places of %s in %s, the first at line %d; export it with more context", p.Path, h.Line, len(places), file.Path, t.release, places[0]+1)}
			}
			if len(places) == 0 || h.Heading == "" {
				continue // git says so, or there is nothing to compare.
			}
			lead, _ := h.Context()
			if is := patch.Declaration(lines, places[0]+lead-1); patch.DeclaredName(is) != patch.DeclaredName(h.Heading) {
				return misplacedError{fmt.Sprintf("%s:%d: stands in %q, but fits into %s of %s, line %d, in %q", p.Path, h.Line, patch.DeclaredName(h.Heading), file.Path, t.release, places[0]+1, patch.DeclaredName(is))}
			}
		}
	}
	return nil
}
