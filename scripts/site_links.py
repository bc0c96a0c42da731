"""Lets links of docs/ that lead out of it, or to a folder, lead to the repository. A hook of mkdocs.yml."""

import os
import re

LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown, page, config, files):
    root = os.path.dirname(config.config_file_path)
    here = os.path.dirname(page.file.abs_src_path)

    def lead(match):
        before, link, after = match.groups()
        target = os.path.normpath(os.path.join(here, link))
        inside = target.startswith(config.docs_dir + os.sep)
        if not os.path.exists(target) or (inside and os.path.isfile(target)):
            return match.group(0)
        kind = "tree" if os.path.isdir(target) else "blob"
        return f"{before}{config.repo_url}/{kind}/main/{os.path.relpath(target, root)}{after}"

    parts = FENCED.split(markdown)
    parts[::2] = [LINK.sub(lead, part) for part in parts[::2]]
    return "".join(parts)
