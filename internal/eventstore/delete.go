package eventstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Delete removes the rows that a filter of LogsQL names, in the background: it returns when the store has
// taken note of that, and what it took note of survives the end of either process. It costs as much as the
// parts that hold any such row: call it rarely.
//
// A row that the spool has too would come back with the next process, so Delete first waits until all that was
// appended before the call lies in the store's files alone: some tenths of a second after it was sent, with a
// server at a URL [Options.SettleAfter]. Rows that the spool still has then are left alone: those appended
// since, and, on a full disk, those that cannot be sent. One call runs at a time; it waits for the removal
// that the one before started.
//
// [ErrNoDelete] is the answer of a server at a URL that does not let anybody delete, a [*QueryError] that to
// a filter that is wrong.
func (s *Store) Delete(ctx context.Context, filter string) error {
	if s.readOnly {
		return ErrReadOnly
	}
	if s.sup != nil && !s.sup.isNeeded() && !s.closed.Load() {
		return nil
	}
	select {
	case s.deleting <- struct{}{}:
		defer func() { <-s.deleting }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := s.deleted(ctx); err != nil {
		return err
	}
	last, err := s.spool.cut()
	if err != nil {
		return fmt.Errorf("%w: the spool cannot be written: %w", ErrReadOnly, err)
	}
	if _, err := s.drain.settled(ctx, last); err != nil {
		return err
	}
	c, err := s.client(ctx)
	if err != nil {
		return err
	}
	first, _, next := s.spool.bounds()
	s.deletion, err = c.delete(ctx, filter, first, next+seqJump)
	return err
}

// deleted waits until the last removal that was started is done: it would read the same parts.
func (s *Store) deleted(ctx context.Context) error {
	for {
		c, err := s.client(ctx)
		if err != nil {
			return err
		}
		tasks, err := c.deletions(ctx)
		if err != nil || s.deletion == "" || !slices.Contains(tasks, s.deletion) {
			return err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the removal before is not done: %w", context.Cause(ctx))
		}
	}
}

// deletions names the removals that are not done.
func (c *client) deletions(ctx context.Context) ([]string, error) {
	b, err := c.post(ctx, "/delete/active_tasks")
	if err != nil {
		var no *answerError
		if c.remote && errors.As(err, &no) && strings.Contains(no.words, "are disabled") {
			return nil, fmt.Errorf("%w: start it with -delete.enable", ErrNoDelete)
		}
		return nil, err
	}
	var tasks []struct {
		ID string `json:"task_id"`
	}
	if err := json.Unmarshal(b, &tasks); err != nil {
		return nil, fmt.Errorf("%w: the list of deletions cannot be read: %w", ErrDown, err)
	}
	ids := make([]string, len(tasks))
	for i := range tasks {
		ids[i] = tasks[i].ID
	}
	return ids, nil
}

// delete starts the removal of the rows that a filter names, but those numbered from first up to before end,
// and returns the server's name for it.
func (c *client) delete(ctx context.Context, filter string, first, end uint64) (string, error) {
	// The bracket stands on a line of its own: a comment may stand in the last one.
	whole := fmt.Sprintf("(%s\n) !_seq:range[%d, %d)", filter, first, end)
	b, err := c.post(ctx, "/delete/run_task?filter="+url.QueryEscape(whole))
	var no *answerError
	if errors.As(err, &no) && no.code == http.StatusBadRequest {
		return "", &QueryError{filter, no.words}
	}
	if err != nil {
		return "", err
	}
	var task struct {
		ID string `json:"task_id"`
	}
	if err := json.Unmarshal(b, &task); err != nil {
		return "", fmt.Errorf("%w: the answer to a deletion cannot be read: %w", ErrDown, err)
	}
	return task.ID, nil
}
