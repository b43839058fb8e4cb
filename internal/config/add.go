package config

import "fmt"

// Add puts the targets of o, which comes from [FromFlags], beside those of c. The error names a job
// that both have.
func (c *Config) Add(o *Config) error {
	jobs := map[string]bool{}
	for _, sc := range c.Prometheus.ScrapeConfigs {
		jobs[sc.JobName] = true
	}
	for _, sc := range o.Prometheus.ScrapeConfigs {
		if jobs[sc.JobName] {
			return fmt.Errorf("%s: the job_name %q is what targets of --scrape are called; give the job in the file another name", c.Path, sc.JobName)
		}
		c.Prometheus.ScrapeConfigs = append(c.Prometheus.ScrapeConfigs, sc)
	}
	c.WorkerLists = append(c.WorkerLists, o.WorkerLists...)
	c.Routers = append(c.Routers, o.Routers...)
	c.FollowLogs = append(c.FollowLogs, o.FollowLogs...)
	return nil
}
