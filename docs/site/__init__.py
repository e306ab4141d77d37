"""What the site is made with: the reference from code, pictures, Mermaid without network."""
