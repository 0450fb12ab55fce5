"""Faults below and around the real process: kills, disks that fail, fill up, are slow or lose power, no descriptors."""
