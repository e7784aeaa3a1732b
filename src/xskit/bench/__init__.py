"""Benchmarks of AF_XDP: xdpsock's modes and more, repeated, interleaved, compared.

settings   what is asked: one Case for each combination of a sweep
bed        where it runs: the user's interfaces, or veth pairs made for it, and what drives their other ends
loops/     the compiled loops
runner     one run of one case;   session   all runs of all cases, interleaved
results    what came out, as JSON;  compare  what changed, and whether that is more than noise
session_report, compare_report   what there is to say, as a document;  render  documents as text, Markdown and HTML
"""
