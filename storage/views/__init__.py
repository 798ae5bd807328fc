"""Views: what pages, lists and the checklist show.

The top of `storage`: no other room of it imports this room.
"""
