"""The lab's file, the rates of its links, and what is up."""
