package api

import (
	"encoding/json"
	"net/http"
	"slices"
)

func (a *API) boards() []Board {
	if a.Boards == nil {
		return nil
	}
	return slices.Clone(a.Boards.Boards())
}

func (a *API) getBoards(r *http.Request) (any, error) {
	p := a.params(r, "limit", "after")
	boards, next := page(p, a.boards(), func(b Board) string { return b.ID })
	if p.err != nil {
		return nil, p.err
	}
	e := envelope(a, boards)
	e.Next = next
	return e, nil
}

func (a *API) getBoard(r *http.Request) (any, error) {
	if p := a.params(r); p.err != nil {
		return nil, p.err
	}
	id := r.PathValue("id")
	for _, b := range a.boards() {
		if b.ID == id {
			return envelope(a, b), nil
		}
	}
	return nil, &Error{Code: "not_found", Message: "there is no board " + id, Where: r.URL.Path, Hint: "GET " + ours + "/boards lists them"}
}

// grafanaHit is a line of Grafana's answer to GET /api/search.
type grafanaHit struct {
	ID          int      `json:"id"`
	UID         string   `json:"uid"`
	OrgID       int      `json:"orgId"`
	Title       string   `json:"title"`
	URI         string   `json:"uri"`
	URL         string   `json:"url"`
	Slug        string   `json:"slug"`
	Type        string   `json:"type"`
	Tags        []string `json:"tags"`
	IsStarred   bool     `json:"isStarred"`
	SortMeta    int      `json:"sortMeta"`
	IsDeleted   bool     `json:"isDeleted"`
	FolderTitle string   `json:"folderTitle,omitempty"`
}

// grafanaSearch answers as Grafana does, for scripts that look a dashboard up by name. Of Grafana's
// parameters it knows query, tag, dashboardUIDs and type; it has no folders, so that type=dash-folder
// finds nothing. It never fails for a parameter it does not know, as Grafana does not.
func (a *API) grafanaSearch(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	hits := []grafanaHit{}
	if t := q.Get("type"); a.Boards != nil && (t == "" || t == "dash-db") {
		for i, b := range a.Boards.Search(q.Get("query")) {
			if uids := q["dashboardUIDs"]; len(uids) > 0 && !slices.Contains(uids, b.UID) {
				continue
			}
			if !containsAll(b.Tags, q["tag"]) {
				continue
			}
			hits = append(hits, grafanaHit{ID: i + 1, UID: b.UID, OrgID: 1, Title: b.Title, URI: "db/" + b.UID,
				URL: "/d/" + b.UID + "/" + b.UID, Type: "dash-db", Tags: b.Tags})
		}
	}
	if err := a.writer.send(w, r, &hits); err != nil {
		refuse(w, faceGrafana, failure(r, err))
	}
}

func containsAll(have, want []string) bool {
	for _, w := range want {
		if !slices.Contains(have, w) {
			return false
		}
	}
	return true
}

// grafanaDashboard answers as Grafana does: {"meta": {...}, "dashboard": {...}}.
func (a *API) grafanaDashboard(w http.ResponseWriter, r *http.Request) {
	uid := r.PathValue("uid")
	err := error(&Error{Code: "not_found", Message: "Dashboard not found", Where: uid, Hint: "GET /api/search lists them"})
	if a.Boards != nil {
		raw, found, problem := a.Boards.Grafana(uid)
		if problem != nil {
			err = problem
		} else if found {
			answer := grafanaBoard{Dashboard: raw, Meta: grafanaMeta{Type: "db", Slug: uid, URL: "/d/" + uid + "/" + uid, Version: 1,
				FolderTitle: "General", Provisioned: true}}
			if err = a.writer.send(w, r, &answer); err == nil {
				return
			}
		}
	}
	refuse(w, faceGrafana, failure(r, err))
}

// grafanaBoard is Grafana's answer to GET /api/dashboards/uid/{uid}.
type grafanaBoard struct {
	Meta      grafanaMeta     `json:"meta"`
	Dashboard json.RawMessage `json:"dashboard"`
}

type grafanaMeta struct {
	Type        string `json:"type"`
	CanSave     bool   `json:"canSave"`
	CanEdit     bool   `json:"canEdit"`
	CanAdmin    bool   `json:"canAdmin"`
	CanDelete   bool   `json:"canDelete"`
	Slug        string `json:"slug"`
	URL         string `json:"url"`
	Version     int    `json:"version"`
	FolderTitle string `json:"folderTitle"`
	Provisioned bool   `json:"provisioned"`
}
