// placeholder until the component is wired
export function StepTimeline(_: { id: string }) {
  return null;
}
