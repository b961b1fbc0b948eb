// What the server promises (docs/protocol.md): the parts that the extension reads.

export interface Status {
  state: 'idle' | 'starting' | 'decoding' | 'checking' | 'paused' | 'unavailable';
  device: string;
  engine?: { running: boolean; pid: number | null; version: string; models: string[] };
  queue: number;
  running?: string;
  waiting_for?: string;
  message: string;
}

export interface Candidate {
  index: number;
  core: string;
  offerable: boolean;
  has_trace: boolean;
}

export interface Evidence {
  uri: string;
  hole: string;
  name: string;
  state: string;
  stale: boolean;
  summary: string;
  candidates: Candidate[];
  markdown: string;
}

export interface Command {
  command: string;
  title: string;
  where: 'hole' | 'module' | 'selection' | 'workspace' | 'none';
  palette: boolean;
}
